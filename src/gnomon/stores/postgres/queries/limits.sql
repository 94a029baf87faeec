-- What may happen at once and how often, and which process may use how much of it. All of it is
-- small and in reference tables; what is shared out is worked out in the program, under the lock.

-- name: set_limit global
-- $1 kind, $2 name, $3 parallel, $4 rate, $5 burst
INSERT INTO /*schema*/work_limit AS l (kind, name, parallel, rate, burst)
VALUES ($1::text, $2::text, $3::int, $4::double precision, $5::int)
ON CONFLICT (kind, name) DO UPDATE
SET parallel = excluded.parallel, rate = excluded.rate, burst = excluded.burst
WHERE (l.parallel, l.rate, l.burst)
    IS DISTINCT FROM (excluded.parallel, excluded.rate, excluded.burst)
RETURNING l.kind;

-- name: delete_limit global
-- $1 kind, $2 name
DELETE FROM /*schema*/work_limit AS l WHERE l.kind = $1::text AND l.name = $2::text
RETURNING l.kind;

-- name: change_clear_grants global
-- $1 kind, $2 name
DELETE FROM /*schema*/limit_grant AS g WHERE g.kind = $1::text AND g.name = $2::text;

-- name: change_version global
-- Tells every worker, with its next heartbeat, that there is something to read.
UPDATE /*schema*/installation AS i SET limits_version = i.limits_version + 1
RETURNING i.limits_version;

-- name: list_version global
SELECT i.limits_version FROM /*schema*/installation AS i;

-- name: list_limits global
-- Who has not asked for this long has nothing any more, though his row may still be there.
-- $1 asked within
SELECT l.kind, l.name, l.parallel, l.rate, l.burst,
       coalesce(sum(g.counted), 0)::int AS granted, coalesce(sum(g.wanted), 0)::int AS wanted
FROM /*schema*/work_limit AS l
LEFT JOIN /*schema*/limit_grant AS g
    ON g.kind = l.kind AND g.name = l.name AND g.asked_at > statement_timestamp() - $1::interval
GROUP BY l.kind, l.name
ORDER BY l.kind, l.name;

-- name: share_lock global
-- One process at a time, until the end of the transaction.
-- $1 kind, $2 name
UPDATE /*schema*/work_limit AS l SET parallel = l.parallel
WHERE l.kind = $1::text AND l.name = $2::text
RETURNING l.parallel;

-- name: share_living global
-- How many shards each living worker holds. One row, also when nobody lives.
-- $1 alive_for
SELECT statement_timestamp() AS now, coalesce(array_agg(w.worker_id), '{}') AS workers,
       coalesce(array_agg(w.shards), '{}') AS shards
FROM /*schema*/worker AS w
WHERE w.heartbeat_at > statement_timestamp() - $1::interval;

-- name: share_grants global
-- $1 kinds, $2 names
SELECT g.kind, g.name, g.worker_id, g.wanted, g.counted, g.allowed, g.is_waiting, g.since, g.asked_at
FROM unnest($1::text[], $2::text[]) AS u (kind, name)
JOIN /*schema*/limit_grant AS g ON g.kind = u.kind AND g.name = u.name;

-- name: share_put_grants global
-- $1 worker, $2 the present, $3 kinds, $4 names, $5 wanted, $6 counted, $7 allowed, $8 is_waiting,
-- $9 since
INSERT INTO /*schema*/limit_grant AS g
    (kind, name, worker_id, asked_at, wanted, counted, allowed, is_waiting, since)
SELECT u.kind, u.name, $1::uuid, $2::timestamptz, u.wanted, u.counted, u.allowed, u.is_waiting,
       u.since
FROM unnest(
    $3::text[], $4::text[], $5::int[], $6::int[], $7::int[], $8::boolean[], $9::timestamptz[]
) AS u (kind, name, wanted, counted, allowed, is_waiting, since)
ON CONFLICT (kind, name, worker_id) DO UPDATE
SET asked_at = excluded.asked_at, wanted = excluded.wanted, counted = excluded.counted,
    allowed = excluded.allowed, is_waiting = excluded.is_waiting, since = excluded.since;

-- name: share_drop_grants global
-- $1 kinds, $2 names, $3 workers
DELETE FROM /*schema*/limit_grant AS g
USING unnest($1::text[], $2::text[], $3::uuid[]) AS u (kind, name, worker_id)
WHERE g.kind = u.kind AND g.name = u.name AND g.worker_id = u.worker_id;
