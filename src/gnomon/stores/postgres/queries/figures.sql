-- The figures of the installation. Nothing here may look at more rows than it is told: the tables
-- may have millions of them, and several processes ask a few times a minute.

-- name: figures_locks global
-- $1 alive_for
SELECT count(*)::int AS shards,
       (count(*) FILTER (
           WHERE l.lease_guid IS NULL OR l.heartbeat_at <= statement_timestamp() - $1::interval
       ))::int AS unowned
FROM /*schema*/shard_lock AS l;

-- name: figures_lanes shard-local
-- By queue: what is due and does not run, since when, and what is for later. Lanes are found by
-- leaping from one to the next in the index; the lanes of a queue are then counted one after the
-- other until the limit is reached.
-- $1 shards, $2 count up to, $3 lanes looked at, $4 rows counted in all, $5 of each queue at least
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
    SELECT l.shard_id, l.queue, l.priority, l.need FROM lane AS l LIMIT $3::int
),
by_queue AS (
    SELECT w.queue, count(*)::int AS lanes, array_agg(w.shard_id) AS shards,
           array_agg(w.priority) AS priorities, array_agg(w.need) AS needs
    FROM few AS w
    GROUP BY w.queue
),
upto AS (
    SELECT least($2::int, greatest($5::int, $4::int / (2 * greatest(count(*), 1))))::int AS rows
    FROM by_queue
)
SELECT b.queue, b.lanes, (SELECT u.rows FROM upto AS u) AS upto, o.since, d.count AS overdue, w.count AS waiting
FROM by_queue AS b
CROSS JOIN LATERAL (
    SELECT min(f.scheduled_at) AS since
    FROM unnest(b.shards, b.priorities, b.needs) AS l (shard_id, priority, need)
    CROSS JOIN LATERAL (
        SELECT q.scheduled_at
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = l.shard_id AND q.queue = b.queue AND q.priority = l.priority
          AND q.need = l.need AND q.scheduled_at <= statement_timestamp() AND NOT q.running
          /*one-shard: AND q.shard_id = $6*/
        ORDER BY q.scheduled_at
        LIMIT 1
    ) AS f
) AS o
CROSS JOIN LATERAL (
    SELECT count(*)::int AS count
    FROM (
        SELECT 1
        FROM unnest(b.shards, b.priorities, b.needs) AS l (shard_id, priority, need)
        CROSS JOIN LATERAL (
            SELECT 1
            FROM /*schema*/processing_queue AS q
            WHERE q.shard_id = l.shard_id AND q.queue = b.queue AND q.priority = l.priority
              AND q.need = l.need AND q.scheduled_at <= statement_timestamp() AND NOT q.running
              /*one-shard: AND q.shard_id = $6*/
            ORDER BY q.scheduled_at
            LIMIT (SELECT u.rows FROM upto AS u)
        ) AS r
        LIMIT (SELECT u.rows FROM upto AS u)
    ) AS counted
) AS d
CROSS JOIN LATERAL (
    SELECT count(*)::int AS count
    FROM (
        SELECT 1
        FROM unnest(b.shards, b.priorities, b.needs) AS l (shard_id, priority, need)
        CROSS JOIN LATERAL (
            SELECT 1
            FROM /*schema*/processing_queue AS q
            WHERE q.shard_id = l.shard_id AND q.queue = b.queue AND q.priority = l.priority
              AND q.need = l.need AND q.scheduled_at > statement_timestamp() AND NOT q.running
              /*one-shard: AND q.shard_id = $6*/
            ORDER BY q.scheduled_at
            LIMIT (SELECT u.rows FROM upto AS u)
        ) AS r
        LIMIT (SELECT u.rows FROM upto AS u)
    ) AS counted
) AS w;

-- name: figures_arrived shard-local
-- What stands in the incoming queue, by queue: the oldest rows of each shard. Those that run there
-- came first. It begins at the mark, less so long as an attempt may run in place: before it are the
-- rows of what has ended, which vacuum cannot remove while somebody's old snapshot may see them.
-- $1 shards, $2 rows of each shard, $3 how long an attempt may run in place
SELECT a.queue, max(a.place)::int AS most,
       (count(*) FILTER (WHERE a.attempt_id IS NOT NULL))::int AS running,
       (count(*) FILTER (
           WHERE a.attempt_id IS NULL AND a.scheduled_at <= statement_timestamp()
       ))::int AS overdue,
       (count(*) FILTER (
           WHERE a.attempt_id IS NULL AND a.scheduled_at > statement_timestamp()
       ))::int AS waiting,
       min(a.scheduled_at) FILTER (
           WHERE a.attempt_id IS NULL AND a.scheduled_at <= statement_timestamp()
       ) AS since
FROM unnest($1::int[]) AS h (shard_id)
CROSS JOIN LATERAL (
    SELECT coalesce(l.incoming_mark - $3::interval, '-infinity') AS since
    FROM /*schema*/shard_lock AS l
    WHERE l.shard_id = h.shard_id /*one-shard: AND l.shard_id = $4*/
    LIMIT 1
) AS m
CROSS JOIN LATERAL (
    SELECT f.queue, f.attempt_id, f.scheduled_at, row_number() OVER () AS place
    FROM (
        SELECT q.queue, q.attempt_id, q.scheduled_at
        FROM /*schema*/incoming_queue AS q
        WHERE q.shard_id = h.shard_id AND q.created_at >= m.since /*one-shard: AND q.shard_id = $4*/
        ORDER BY q.created_at, q.guid
        LIMIT $2::int
    ) AS f
) AS a
GROUP BY a.queue;

-- name: figures_running shard-local
-- Attempts under way in the processing queue, by queue. Each has an id, which only the rows tell: so
-- that no other index than the small one of what runs can answer, and be gone through.
-- $1 shards, $2 count up to
SELECT r.queue, count(*)::int AS running
FROM (
    SELECT f.queue
    FROM unnest($1::int[]) AS h (shard_id)
    CROSS JOIN LATERAL (
        SELECT q.queue
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = h.shard_id AND q.running AND q.attempt_id IS NOT NULL
          /*one-shard: AND q.shard_id = $3*/
        ORDER BY q.scheduled_at
        LIMIT $2::int
    ) AS f
    LIMIT $2::int
) AS r
GROUP BY r.queue;

-- name: figures_dead shard-local
-- Dead actions that are still kept, by queue, in their own small index.
-- $1 count up to
WITH RECURSIVE dead AS (
    (
        SELECT f.queue
        FROM /*schema*/finished_action AS f
        WHERE f.state = 'dead' AND f.queue > '' /*one-shard: AND f.shard_id = $2*/
        ORDER BY f.queue, f.purge_at
        LIMIT 1
    )
    UNION ALL
    SELECT n.queue
    FROM dead AS d
    CROSS JOIN LATERAL (
        SELECT f.queue
        FROM /*schema*/finished_action AS f
        WHERE f.state = 'dead' AND f.queue > d.queue /*one-shard: AND f.shard_id = $2*/
        ORDER BY f.queue, f.purge_at
        LIMIT 1
    ) AS n
)
SELECT d.queue, c.count AS dead
FROM dead AS d
CROSS JOIN LATERAL (
    SELECT count(*)::int AS count
    FROM (
        SELECT 1
        FROM /*schema*/finished_action AS f
        WHERE f.state = 'dead' AND f.queue = d.queue AND f.purge_at > statement_timestamp()
          /*one-shard: AND f.shard_id = $2*/
        LIMIT $1::int
    ) AS counted
) AS c;

-- name: figures_stages shard-local
-- By stage: entities that are ready for it and due, and since when; in the way of `figures_lanes`.
-- $1 shards, $2 count up to, $3 lanes looked at
WITH RECURSIVE part AS (
    SELECT h.shard_id, f.stage, f.lane
    FROM unnest($1::int[]) AS h (shard_id)
    CROSS JOIN LATERAL (
        SELECT q.stage, q.lane
        FROM /*schema*/stage_queue AS q
        WHERE q.shard_id = h.shard_id AND q.status = 'ready' /*one-shard: AND q.shard_id = $4*/
        ORDER BY q.stage, q.lane, q.ready_at
        LIMIT 1
    ) AS f
    UNION ALL
    SELECT p.shard_id, n.stage, n.lane
    FROM part AS p
    CROSS JOIN LATERAL (
        SELECT q.stage, q.lane
        FROM /*schema*/stage_queue AS q
        WHERE q.shard_id = p.shard_id AND q.status = 'ready' AND (q.stage, q.lane) > (p.stage, p.lane)
          /*one-shard: AND q.shard_id = $4*/
        ORDER BY q.stage, q.lane, q.ready_at
        LIMIT 1
    ) AS n
),
few AS (
    SELECT p.shard_id, p.stage, p.lane FROM part AS p LIMIT $3::int
),
by_stage AS (
    SELECT w.stage, array_agg(w.shard_id) AS shards, array_agg(w.lane) AS lanes
    FROM few AS w
    GROUP BY w.stage
)
SELECT b.stage, o.since, d.count AS overdue
FROM by_stage AS b
CROSS JOIN LATERAL (
    SELECT min(f.ready_at) AS since
    FROM unnest(b.shards, b.lanes) AS l (shard_id, lane)
    CROSS JOIN LATERAL (
        SELECT q.ready_at
        FROM /*schema*/stage_queue AS q
        WHERE q.shard_id = l.shard_id AND q.stage = b.stage AND q.lane = l.lane
          AND q.status = 'ready' AND q.ready_at <= statement_timestamp()
          /*one-shard: AND q.shard_id = $4*/
        ORDER BY q.ready_at
        LIMIT 1
    ) AS f
) AS o
CROSS JOIN LATERAL (
    SELECT count(*)::int AS count
    FROM (
        SELECT 1
        FROM unnest(b.shards, b.lanes) AS l (shard_id, lane)
        CROSS JOIN LATERAL (
            SELECT 1
            FROM /*schema*/stage_queue AS q
            WHERE q.shard_id = l.shard_id AND q.stage = b.stage AND q.lane = l.lane
              AND q.status = 'ready' AND q.ready_at <= statement_timestamp()
              /*one-shard: AND q.shard_id = $4*/
            ORDER BY q.ready_at
            LIMIT $2::int
        ) AS r
        LIMIT $2::int
    ) AS counted
) AS d;

-- name: figures_parked shard-local
-- Parked rows by stage: so many of them in all.
-- $1 count up to
SELECT f.stage, count(*)::int AS parked
FROM (
    SELECT q.stage
    FROM /*schema*/stage_queue AS q
    WHERE q.status IN ('quarantined', 'looping') /*one-shard: AND q.shard_id = $2*/
    ORDER BY q.entity_key, q.stage
    LIMIT $1::int
) AS f
GROUP BY f.stage;
