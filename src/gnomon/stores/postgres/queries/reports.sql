-- What people look at. Nothing here looks at more rows than it is told, however many there are.

-- name: why_lock shard-local
-- $1 shard
SELECT l.shard_id, l.lease_guid, l.owner, l.beat, statement_timestamp() - l.heartbeat_at AS silent_for,
       l.last_processing_start_at
FROM /*schema*/shard_lock AS l
WHERE l.shard_id = $1::int;

-- name: why_behind shard-local
-- How many due rows of a queue come before one: of a priority before its own, or due earlier.
-- $1 shard, $2 queue, $3 priority, $4 need, $5 due at, $6 count up to
SELECT count(*)::int AS behind
FROM (
    SELECT 1
    FROM generate_series(0, $3::int) AS p (priority)
    CROSS JOIN LATERAL (
        SELECT 1
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = $1::int AND q.queue = $2::text AND q.priority = p.priority
          AND q.need = $4::text AND NOT q.running
          AND q.scheduled_at < CASE
              WHEN p.priority < $3::int THEN statement_timestamp() ELSE $5::timestamptz
          END
        ORDER BY q.scheduled_at
        LIMIT $6::int
    ) AS r
    LIMIT $6::int
) AS counted;

-- name: failures_queue_after global
-- Queues with dead actions one by one, each found by one step in the index.
-- $1 the queue before
SELECT f.queue
FROM /*schema*/finished_action AS f
WHERE f.state = 'dead' AND f.queue > $1::text
ORDER BY f.queue
LIMIT 1;

-- name: failures_dead global
-- The dead of a queue that are kept the longest: most often the newest.
-- $1 queue, $2 rows
SELECT f.id, f.queue, f.finished_at AS at, f.reason, f.last_attempt, f.shard_id, f.guid,
       /*schema*/effect_names(f.spec) AS effect
FROM /*schema*/finished_action AS f
WHERE f.state = 'dead' AND f.queue = $1::text AND f.purge_at > statement_timestamp()
ORDER BY f.purge_at DESC
LIMIT $2::int;

-- name: failures_replaced shard-local
-- Which of these generations are not the last of their ids: it lives again, or ended once more.
-- $1 shards, $2 ids, $3 guids, $4 finished_at
SELECT u.guid
FROM unnest($1::int[], $2::text[], $3::uuid[], $4::timestamptz[]) AS u (shard_id, id, guid, finished_at)
WHERE EXISTS (
    SELECT 1 FROM /*schema*/scheduled_action AS s
    WHERE s.shard_id = u.shard_id AND s.id = u.id /*one-shard: AND s.shard_id = $5*/
) OR EXISTS (
    SELECT 1 FROM /*schema*/finished_action AS f
    WHERE f.shard_id = u.shard_id AND f.id = u.id AND f.purge_at > statement_timestamp()
      AND (f.finished_at, f.guid) > (u.finished_at, u.guid) /*one-shard: AND f.shard_id = $5*/
);

-- name: failures_retrying global
-- Live actions whose last attempt failed.
-- $1 rows
SELECT a.id, a.queue, a.updated_at AS at, NULL::text AS reason, a.last_attempt,
       /*schema*/effect_names(a.spec) AS effect
FROM /*schema*/scheduled_action AS a
WHERE a.occurrence_failures > 0 AND a.shard_id >= 0
ORDER BY a.shard_id, a.id
LIMIT $1::int;

-- name: load_lanes shard-local
-- Lanes, found as in `figures_lanes`.
-- $1 shards, $2 lanes at most
WITH RECURSIVE lane AS (
    SELECT h.shard_id, f.queue, f.priority, f.need
    FROM unnest($1::int[]) AS h (shard_id)
    CROSS JOIN LATERAL (
        SELECT q.queue, q.priority, q.need
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = h.shard_id /*one-shard: AND q.shard_id = $3*/
        ORDER BY q.queue, q.priority, q.need, q.scheduled_at
        LIMIT 1
    ) AS f
    UNION ALL
    SELECT p.shard_id, n.queue, n.priority, n.need
    FROM lane AS p
    CROSS JOIN LATERAL (
        SELECT q.queue, q.priority, q.need
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = p.shard_id AND (q.queue, q.priority, q.need) > (p.queue, p.priority, p.need)
          /*one-shard: AND q.shard_id = $3*/
        ORDER BY q.queue, q.priority, q.need, q.scheduled_at
        LIMIT 1
    ) AS n
)
SELECT l.shard_id, l.queue, l.priority, l.need FROM lane AS l LIMIT $2::int;

-- name: load_few shard-local
-- When the rows of lanes are due that have few within a time: NULL where there are as many as may be
-- read, or more. One row for each lane, in order.
-- $1 shards, $2 queues, $3 priorities, $4 needs, $5 since, $6 until, $7 rows of a lane
SELECT r.times
FROM unnest($1::int[], $2::text[], $3::smallint[], $4::text[]) WITH ORDINALITY
    AS l (shard_id, queue, priority, need, place)
CROSS JOIN LATERAL (
    SELECT CASE WHEN count(*) < $7::int THEN coalesce(array_agg(d.scheduled_at), '{}') END AS times
    FROM (
        SELECT q.scheduled_at
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = l.shard_id AND q.queue = l.queue AND q.priority = l.priority
          AND q.need = l.need AND NOT q.running
          AND q.scheduled_at >= $5::timestamptz AND q.scheduled_at < $6::timestamptz
          /*one-shard: AND q.shard_id = $8*/
        ORDER BY q.scheduled_at
        LIMIT $7::int
    ) AS d
) AS r
ORDER BY l.place;

-- name: load_due shard-local
-- The first rows of lanes in each bucket: how many, up to when, and their fullest second.
-- $1 shards, $2 queues, $3 priorities, $4 needs, $5 beginnings, $6 ends, $7 rows of each
SELECT b.place::int AS place, s.seen, s.last_at, s.herd_at, s.herd
FROM unnest($5::timestamptz[], $6::timestamptz[]) WITH ORDINALITY AS b (since, until, place)
CROSS JOIN unnest($1::int[], $2::text[], $3::smallint[], $4::text[])
    AS l (shard_id, queue, priority, need)
CROSS JOIN LATERAL (
    SELECT g.at AS herd_at, g.count AS herd, (sum(g.count) OVER ())::int AS seen,
           max(g.last_at) OVER () AS last_at
    FROM (
        SELECT date_trunc('second', r.scheduled_at) AS at, count(*)::int AS count,
               max(r.scheduled_at) AS last_at
        FROM (
            SELECT q.scheduled_at
            FROM /*schema*/processing_queue AS q
            WHERE q.shard_id = l.shard_id AND q.queue = l.queue AND q.priority = l.priority
              AND q.need = l.need AND NOT q.running
              AND q.scheduled_at >= b.since AND q.scheduled_at < b.until
              /*one-shard: AND q.shard_id = $8*/
            ORDER BY q.scheduled_at
            LIMIT $7::int
        ) AS r
        GROUP BY date_trunc('second', r.scheduled_at)
    ) AS g
    ORDER BY g.count DESC, g.at
    LIMIT 1
) AS s;

-- name: load_arrived shard-local
-- What stands in the incoming queue, by the second in which it is due: the oldest rows of each shard.
-- What waits is not before the mark; see `figures_arrived`.
-- $1 shards, $2 rows of each shard
SELECT date_trunc('second', a.scheduled_at) AS at, count(*)::int AS count, max(a.place)::int AS most
FROM unnest($1::int[]) AS h (shard_id)
CROSS JOIN LATERAL (
    SELECT coalesce(l.incoming_mark, '-infinity') AS since
    FROM /*schema*/shard_lock AS l
    WHERE l.shard_id = h.shard_id /*one-shard: AND l.shard_id = $3*/
    LIMIT 1
) AS m
CROSS JOIN LATERAL (
    SELECT f.scheduled_at, row_number() OVER () AS place
    FROM (
        SELECT q.scheduled_at
        FROM /*schema*/incoming_queue AS q
        WHERE q.shard_id = h.shard_id AND q.created_at >= m.since AND q.attempt_id IS NULL
          /*one-shard: AND q.shard_id = $3*/
        ORDER BY q.created_at, q.guid
        LIMIT $2::int
    ) AS f
) AS a
GROUP BY date_trunc('second', a.scheduled_at);

-- name: herd_ids shard-local
-- Some of the actions that are due within a time.
-- $1 shards, $2 lanes looked at, $3 since, $4 until, $5 limit
WITH RECURSIVE lane AS (
    SELECT h.shard_id, f.queue, f.priority, f.need
    FROM unnest($1::int[]) AS h (shard_id)
    CROSS JOIN LATERAL (
        SELECT q.queue, q.priority, q.need
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = h.shard_id /*one-shard: AND q.shard_id = $6*/
        ORDER BY q.queue, q.priority, q.need, q.scheduled_at
        LIMIT 1
    ) AS f
    UNION ALL
    SELECT p.shard_id, n.queue, n.priority, n.need
    FROM lane AS p
    CROSS JOIN LATERAL (
        SELECT q.queue, q.priority, q.need
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = p.shard_id AND (q.queue, q.priority, q.need) > (p.queue, p.priority, p.need)
          /*one-shard: AND q.shard_id = $6*/
        ORDER BY q.queue, q.priority, q.need, q.scheduled_at
        LIMIT 1
    ) AS n
),
few AS (
    SELECT l.shard_id, l.queue, l.priority, l.need FROM lane AS l LIMIT $2::int
)
SELECT a.id
FROM few AS l
CROSS JOIN LATERAL (
    SELECT q.guid
    FROM /*schema*/processing_queue AS q
    WHERE q.shard_id = l.shard_id AND q.queue = l.queue AND q.priority = l.priority
      AND q.need = l.need AND NOT q.running
      AND q.scheduled_at >= $3::timestamptz AND q.scheduled_at < $4::timestamptz
      /*one-shard: AND q.shard_id = $6*/
    ORDER BY q.scheduled_at
    LIMIT $5::int
) AS d
CROSS JOIN LATERAL (
    SELECT s.id
    FROM /*schema*/scheduled_action AS s
    WHERE s.guid = d.guid /*one-shard: AND s.shard_id = $6*/
    LIMIT 1
) AS a
LIMIT $5::int;

-- name: list_recurring global
-- Active actions that come again, and when their next occurrence is planned.
-- $1 rows
SELECT a.id, a.spec, a.occurrence_at
FROM /*schema*/scheduled_action AS a
WHERE position('"policy":{' IN a.spec) > 0 AND a.shard_id >= 0 AND a.state = 'active'
ORDER BY a.shard_id, a.id
LIMIT $1::int;
