-- Saves on their way out. Of one entity and sink no row is due before an earlier one.

-- name: sink_with_row_from
-- Sinks one by one, each found by one step in the index: when one of its rows is due, and the oldest.
-- That is either the first in order of time, or one that was put off: any other has a due time that
-- is its own, and after the first one's.
SELECT o.sink, o.ready_at, min(o.at, coalesce(
    (
        SELECT l.at FROM stage_outbox AS l INDEXED BY stage_outbox_late_idx
        WHERE l.shard_id = o.shard_id AND l.sink = o.sink AND l.ready_at > l.at
        ORDER BY l.at
        LIMIT 1
    ), o.at
))
FROM stage_outbox AS o INDEXED BY stage_outbox_ready_idx
WHERE o.shard_id = :shard AND o.sink >= :sink
ORDER BY o.sink, o.ready_at, o.n
LIMIT 1;

-- name: outgoing
SELECT
    ready_at, n, entity_id, sink, shard_id, epoch, version, root, author, paths, key, attempts, at,
    state_version, state_revision, state_body, state_type, doc
FROM stage_outbox INDEXED BY stage_outbox_ready_idx
WHERE shard_id = :shard AND sink = :sink AND ready_at <= :now
ORDER BY ready_at, n;

-- name: sent
DELETE FROM stage_outbox WHERE entity_id = :id AND sink = :sink AND n = :n;

-- name: unsent
UPDATE stage_outbox SET attempts = attempts + :counts, error = :error
WHERE entity_id = :id AND sink = :sink AND n = :n;

-- name: hold_back
-- With all later ones, so that none overtakes it.
UPDATE stage_outbox SET ready_at = :ready_at
WHERE entity_id = :id AND sink = :sink AND n >= :n AND ready_at < :ready_at;

-- name: backlog
SELECT sink, count(*), min(at), min(error) FROM stage_outbox GROUP BY sink ORDER BY sink;
