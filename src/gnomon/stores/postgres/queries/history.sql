-- What was counted of attempts, by minute and later by hour. A small table that every node has whole.

-- name: record_minute global
-- A worker's counts of a time; what it said of it before is replaced.
-- $1 worker, $2 times, $3 spans, $4 queues, $5 counts
INSERT INTO /*schema*/history (at, worker_id, span, queue, counts)
SELECT u.at, $1::uuid, u.span, u.queue, u.counts
FROM unnest($2::timestamptz[], $3::int[], $4::text[], $5::text[]) AS u (at, span, queue, counts)
ON CONFLICT (queue, at, span, worker_id) DO UPDATE SET counts = excluded.counts;

-- name: list_history global
-- $1 queue, $2 since, $3 until, $4 limit
SELECT h.at, h.span, h.queue, h.counts
FROM /*schema*/history AS h
WHERE h.queue = $1::text AND h.at >= $2::timestamptz AND h.at < $3::timestamptz
ORDER BY h.at
LIMIT $4::int;

-- name: thin_history_take global
-- Take the oldest rows of a span that are older than this. Each row is taken by one caller only.
-- $1 span, $2 older than, $3 limit
WITH old AS (
    SELECT h.queue, h.at, h.span, h.worker_id
    FROM /*schema*/history AS h
    WHERE h.span = $1::int AND h.at < statement_timestamp() - $2::interval
    ORDER BY h.at
    LIMIT $3::int
)
DELETE FROM /*schema*/history AS h
USING old
WHERE h.queue = old.queue AND h.at = old.at AND h.span = old.span AND h.worker_id = old.worker_id
RETURNING h.queue, h.at, h.counts;

-- name: thin_history_own global
-- The rows that a worker has made by putting others together.
-- $1 worker, $2 span, $3 queues, $4 times
SELECT h.queue, h.at, h.counts
FROM unnest($3::text[], $4::timestamptz[]) AS u (queue, at)
JOIN /*schema*/history AS h
    ON h.queue = u.queue AND h.at = u.at AND h.span = $2::int AND h.worker_id = $1::uuid;
