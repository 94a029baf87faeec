-- Saves on their way out. An entity's rows for one sink have growing numbers, and no row is due before
-- one with a lower number: a save is due no earlier than the last row, and `put_off` puts off those
-- behind a row together with it. What is quarantined has no due time, nor has what is behind it. So
-- whoever makes rows, puts them off, parks or frees them locks the entity and writes its row, that a
-- save may know the last row; only what was sent is taken away without.

-- name: waiting_sinks shard-local
-- What waits in held shards, by leaping from sink to sink in the index: the age of the oldest row, and
-- in what time one is due. The oldest is either the first in order of time, or one that was put off: any
-- other is due since it was made, and that was later.
-- $1 shards, $2 lease guids
WITH RECURSIVE held AS MATERIALIZED (
    SELECT n.shard_id
    FROM unnest($1::int[], $2::uuid[]) AS u (shard_id, lease_guid)
    CROSS JOIN LATERAL (
        SELECT l.shard_id
        FROM /*schema*/shard_lock AS l
        WHERE l.shard_id = u.shard_id AND l.lease_guid = u.lease_guid
          /*one-shard: AND l.shard_id = $3*/
        LIMIT 1
    ) AS n
), first AS (
    SELECT h.shard_id, f.sink, f.at, f.ready_at
    FROM held AS h
    CROSS JOIN LATERAL (
        SELECT o.sink, o.at, o.ready_at
        FROM /*schema*/stage_outbox AS o
        WHERE o.shard_id = h.shard_id AND o.ready_at IS NOT NULL
          /*one-shard: AND o.shard_id = $3*/
        ORDER BY o.sink, o.ready_at, o.n
        LIMIT 1
    ) AS f
    UNION ALL
    SELECT p.shard_id, n.sink, n.at, n.ready_at
    FROM first AS p
    CROSS JOIN LATERAL (
        SELECT o.sink, o.at, o.ready_at
        FROM /*schema*/stage_outbox AS o
        WHERE o.shard_id = p.shard_id AND o.sink > p.sink AND o.ready_at IS NOT NULL
          /*one-shard: AND o.shard_id = $3*/
        ORDER BY o.sink, o.ready_at, o.n
        LIMIT 1
    ) AS n
)
SELECT
    f.sink, statement_timestamp() - min(least(f.at, l.at)) AS age,
    min(f.ready_at) - statement_timestamp() AS due_in
FROM first AS f
LEFT JOIN LATERAL (
    SELECT o.at
    FROM /*schema*/stage_outbox AS o
    WHERE o.shard_id = f.shard_id AND o.sink = f.sink AND o.ready_at > o.at
      /*one-shard: AND o.shard_id = $3*/
    ORDER BY o.at
    LIMIT 1
) AS l ON true
GROUP BY f.sink;

-- name: due_saves shard-local
-- Bytes are known without reading what they are of.
-- $1 shards, $2 lease guids, $3 limit, $4 limit per shard, $5 sink, $6 bytes: the row that reaches them is
-- the last, $7 entities to leave out
SELECT
    t.shard_id, t.n, t.sink, t.entity_key, t.epoch, t.version, t.author, t.paths, t.doc,
    t.state_version, t.state_revision, t.state_type, t.state_body, t.key, t.attempts, t.at,
    t.root, t.ready_at
FROM (
    SELECT
        f.*, sum(coalesce(octet_length(f.doc), 0) + coalesce(octet_length(f.state_body), 0)) OVER (
            ORDER BY f.ready_at, f.n, f.entity_key
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS bytes_before
    FROM unnest($1::int[], $2::uuid[]) AS h (shard_id, lease_guid)
    CROSS JOIN LATERAL (
        SELECT l.shard_id
        FROM /*schema*/shard_lock AS l
        WHERE l.shard_id = h.shard_id AND l.lease_guid = h.lease_guid
          /*one-shard: AND l.shard_id = $8*/
        LIMIT 1
    ) AS held
    CROSS JOIN LATERAL (
        SELECT n.*
        FROM /*schema*/stage_outbox AS n
        WHERE n.shard_id = h.shard_id AND n.sink = $5::text AND n.ready_at <= statement_timestamp()
          AND n.entity_key <> ALL ($7::text[]) /*one-shard: AND n.shard_id = $8*/
        ORDER BY n.ready_at, n.n
        LIMIT $4::int
    ) AS f
    ORDER BY f.ready_at, f.n, f.entity_key
    LIMIT $3::int
) AS t
WHERE t.bytes_before IS NULL OR t.bytes_before < $6::bigint
ORDER BY t.ready_at, t.n, t.entity_key;

-- name: remove_saves shard-local
-- $1 shards, $2 entities, $3 sinks, $4 numbers
DELETE FROM /*schema*/stage_outbox AS o
WHERE o.ctid = ANY (ARRAY(
    SELECT r.row_id
    FROM unnest($1::int[], $2::text[], $3::text[], $4::bigint[]) AS u (shard_id, entity_key, sink, n)
    CROSS JOIN LATERAL (
        SELECT p.ctid AS row_id
        FROM /*schema*/stage_outbox AS p
        WHERE p.shard_id = u.shard_id AND p.entity_key = u.entity_key AND p.sink = u.sink AND p.n = u.n
          /*one-shard: AND p.shard_id = $5*/
        LIMIT 1
    ) AS r
)) /*one-shard: AND o.shard_id = $5*/;

-- name: put_off shard-local
-- Put rows off that are still there, and those behind them with them; the entities are locked. A repeat
-- counts once more; that does no harm.
-- $1 shards, $2 entities, $3 sinks, $4 numbers, $5 delay, $6 error, $7 what it counts
WITH behind AS MATERIALIZED (
    SELECT r.row_id, bool_or(r.n = u.n) AS is_it
    FROM unnest($1::int[], $2::text[], $3::text[], $4::bigint[]) AS u (shard_id, entity_key, sink, n)
    CROSS JOIN LATERAL (
        SELECT p.n
        FROM /*schema*/stage_outbox AS p
        WHERE p.shard_id = u.shard_id AND p.entity_key = u.entity_key AND p.sink = u.sink AND p.n = u.n
          AND p.ready_at IS NOT NULL /*one-shard: AND p.shard_id = $8*/
        LIMIT 1
    ) AS there
    CROSS JOIN LATERAL (
        SELECT p.ctid AS row_id, p.n
        FROM /*schema*/stage_outbox AS p
        WHERE p.shard_id = u.shard_id AND p.entity_key = u.entity_key AND p.sink = u.sink AND p.n >= u.n
          AND p.ready_at IS NOT NULL /*one-shard: AND p.shard_id = $8*/
        OFFSET 0
    ) AS r
    GROUP BY r.row_id
)
UPDATE /*schema*/stage_outbox AS o
SET ready_at = greatest(o.ready_at, statement_timestamp() + $5::interval),
    attempts = o.attempts + CASE WHEN b.is_it THEN $7::int ELSE 0 END,
    error = CASE WHEN b.is_it THEN $6::text ELSE o.error END
FROM behind AS b
WHERE o.ctid = b.row_id /*one-shard: AND o.shard_id = $8*/;

-- name: quarantine shard-local
-- A row that is still there and not quarantined, and those behind it; the entity is locked.
-- $1 shard, $2 entity, $3 sink, $4 number, $5 error
UPDATE /*schema*/stage_outbox AS o
SET ready_at = NULL, attempts = o.attempts + (o.n = $4::bigint)::int,
    error = CASE WHEN o.n = $4::bigint THEN $5::text ELSE o.error END
WHERE o.shard_id = $1::int AND o.entity_key = $2::text AND o.sink = $3::text AND o.n >= $4::bigint
  AND EXISTS (
      SELECT 1 FROM /*schema*/stage_outbox AS p
      WHERE p.shard_id = $1::int AND p.entity_key = $2::text AND p.sink = $3::text
        AND p.n = $4::bigint AND p.ready_at IS NOT NULL
  );

-- name: backlog global
-- What waits in the whole installation.
SELECT o.sink, count(*) AS count, min(o.at) AS oldest_at, min(o.error) AS error,
       count(*) FILTER (WHERE o.ready_at IS NULL) AS quarantined
FROM /*schema*/stage_outbox AS o
GROUP BY o.sink
ORDER BY o.sink;
