-- name: list_locks
SELECT shard_id, lease_guid, owner, beat, heartbeat_at, last_processing_start_at
FROM shard_lock
WHERE :silent_since IS NULL OR lease_guid IS NULL OR heartbeat_at < :silent_since
ORDER BY last_processing_start_at NULLS FIRST, shard_id;

-- name: acquire
-- Compare-and-set on the lock as seen; the same lease guid again is a repeat and succeeds.
UPDATE shard_lock SET
    lease_guid = :lease_guid, owner = :owner, beat = 0, heartbeat_at = :now,
    last_processing_start_at = :now
WHERE shard_id = :shard
    AND (
        lease_guid = :lease_guid
        OR (
            lease_guid IS :seen_guid AND beat = :seen_beat
            AND (lease_guid IS NULL OR heartbeat_at < :stale_before)
        )
    )
RETURNING incoming_mark;

-- name: heartbeat
-- Of all holdings at once: `marks` has the shard of each and where its incoming rows begin, if that
-- is known, `leases` its lease, 16 bytes.
UPDATE shard_lock AS l SET
    beat = l.beat + 1, heartbeat_at = :now, incoming_mark = coalesce(h.mark, l.incoming_mark)
FROM (
    SELECT
        json_extract(value, '$[0]') AS shard, json_extract(value, '$[1]') AS mark,
        substr(:leases, key * 16 + 1, 16) AS lease_guid
    FROM json_each(:marks)
) AS h
WHERE l.shard_id = h.shard AND l.lease_guid = h.lease_guid;

-- name: heartbeat_held
-- Which of them are held.
SELECT json_group_array(l.shard_id)
FROM json_each(:marks) AS s
CROSS JOIN shard_lock AS l
WHERE l.shard_id = json_extract(s.value, '$[0]')
    AND l.lease_guid = substr(:leases, s.key * 16 + 1, 16);

-- name: heartbeat_worker
INSERT INTO worker (worker_id, owner, process, started_at, heartbeat_at, shards, offer)
VALUES (:worker, :owner, :process, :now, :now, :shards, :offer)
ON CONFLICT (worker_id) DO UPDATE SET
    heartbeat_at = :now, shards = :shards, process = :process, offer = :offer;

-- name: heartbeat_alive
SELECT
    count(*) AS workers, coalesce(sum(shards), 0) AS shards,
    coalesce(sum(shards) FILTER (WHERE heartbeat_at >= coalesce(:fresh_since, :alive_since)), 0) AS shards_fresh,
    (SELECT limits_version FROM installation) AS limits_version
FROM worker
WHERE heartbeat_at >= :alive_since;

-- name: release
UPDATE shard_lock SET lease_guid = NULL, owner = NULL, heartbeat_at = NULL
WHERE shard_id = :shard AND lease_guid = :lease_guid;

-- name: remove_worker
DELETE FROM worker WHERE worker_id = :worker;

-- name: list_workers
SELECT worker_id, owner, process, heartbeat_at, offer FROM worker ORDER BY worker_id;
