-- What was counted of attempts, by minute and later by hour.

-- name: record_minute
-- A worker's counts of a time; what it said of it before is replaced.
INSERT INTO history (queue, at, span, worker_id, counts)
VALUES (:queue, :at, :span, :worker, :counts)
ON CONFLICT (queue, at, span, worker_id) DO UPDATE SET counts = excluded.counts;

-- name: list_history
SELECT at, span, queue, counts FROM history
WHERE queue = :queue AND at >= :since AND at < :until
ORDER BY at
LIMIT :limit;

-- name: thin_history_take
-- The oldest rows of a span that are older than this.
SELECT queue, at, span, worker_id, counts FROM history INDEXED BY history_span_idx
WHERE span = :span AND at < :before
ORDER BY at
LIMIT :limit;

-- name: thin_history_remove
DELETE FROM history
WHERE queue = :queue AND at = :at AND span = :span AND worker_id = :worker_id;

-- name: thin_history_own
-- The row that a worker has made by putting others together.
SELECT counts FROM history
WHERE queue = :queue AND at = :at AND span = :span AND worker_id = :worker;
