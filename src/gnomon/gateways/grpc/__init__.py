"""The gRPC gateway: `gnomon.v1.SchedulerService` over a `Scheduler`, on loopback."""
