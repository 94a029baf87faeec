-- What may happen at once and how often, and which process may use how much of it.

-- name: set_limit
INSERT INTO work_limit (kind, name, parallel, rate, burst)
VALUES (:kind, :name, :parallel, :rate, :burst)
ON CONFLICT (kind, name) DO UPDATE SET parallel = :parallel, rate = :rate, burst = :burst
WHERE parallel IS NOT :parallel OR rate IS NOT :rate OR burst IS NOT :burst;

-- name: delete_limit
DELETE FROM work_limit WHERE kind = :kind AND name = :name;

-- name: change_clear_grants
DELETE FROM limit_grant WHERE kind = :kind AND name = :name;

-- name: change_version
-- Tells every worker, with its next heartbeat, that there is something to read.
UPDATE installation SET limits_version = limits_version + 1;

-- name: list_version
SELECT limits_version FROM installation;

-- name: list_limits
-- Who has not asked for this long has nothing any more, though his row may still be there.
SELECT l.kind, l.name, l.parallel, l.rate, l.burst,
    coalesce(sum(g.counted), 0) AS granted, coalesce(sum(g.wanted), 0) AS wanted
FROM work_limit AS l
LEFT JOIN limit_grant AS g
    ON g.kind = l.kind AND g.name = l.name AND g.asked_at > :asked_since
GROUP BY l.kind, l.name
ORDER BY l.kind, l.name;

-- name: share_parallel
SELECT parallel FROM work_limit WHERE kind = :kind AND name = :name;

-- name: share_living
SELECT worker_id, shards FROM worker WHERE heartbeat_at >= :alive_since;

-- name: share_grants
SELECT worker_id, wanted, counted, allowed, is_waiting, since, asked_at
FROM limit_grant
WHERE kind = :kind AND name = :name;

-- name: share_put_grant
INSERT INTO limit_grant
    (kind, name, worker_id, wanted, counted, allowed, is_waiting, since, asked_at)
VALUES (:kind, :name, :worker, :wanted, :counted, :allowed, :is_waiting, :since, :now)
ON CONFLICT (kind, name, worker_id) DO UPDATE SET
    wanted = :wanted, counted = :counted, allowed = :allowed, is_waiting = :is_waiting,
    since = :since, asked_at = :now;

-- name: share_drop_grant
DELETE FROM limit_grant WHERE kind = :kind AND name = :name AND worker_id = :worker;
