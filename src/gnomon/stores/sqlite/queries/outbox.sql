-- Saves on their way out. Of one entity and sink no row is due before an earlier one; what is
-- quarantined, and what is behind it, has no due time.

-- name: waiting_sinks
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
WHERE o.shard_id = :shard AND o.sink >= :sink AND o.ready_at IS NOT NULL
ORDER BY o.sink, o.ready_at, o.n
LIMIT 1;

-- name: due_saves
SELECT ready_at, n, entity_key
FROM stage_outbox INDEXED BY stage_outbox_ready_idx
WHERE shard_id = :shard AND sink = :sink AND ready_at <= :now
ORDER BY ready_at, n;

-- name: due_saves_load
-- In the order of the keys, and read no further than wanted.
SELECT
    o.n, o.entity_key, o.sink, o.shard_id, o.epoch, o.version, o.root, o.author, o.paths, o.key,
    o.attempts, o.at, o.state_version, o.state_revision, o.state_body, o.state_type, o.doc
FROM json_each(:keys) AS k
CROSS JOIN stage_outbox AS o
WHERE o.entity_key = json_extract(k.value, '$[0]') AND o.sink = :sink
    AND o.n = json_extract(k.value, '$[1]');

-- name: remove_saves
DELETE FROM stage_outbox WHERE entity_key = :entity_key AND sink = :sink AND n = :n;

-- name: put_off_count
UPDATE stage_outbox SET attempts = attempts + :counts, error = :error
WHERE entity_key = :entity_key AND sink = :sink AND n = :n AND ready_at IS NOT NULL;

-- name: put_off
-- With all later ones, so that none overtakes it.
UPDATE stage_outbox SET ready_at = :ready_at
WHERE entity_key = :entity_key AND sink = :sink AND n >= :n AND ready_at < :ready_at;

-- name: quarantine
-- With all later ones.
UPDATE stage_outbox SET ready_at = NULL WHERE entity_key = :entity_key AND sink = :sink AND n >= :n;

-- name: backlog
SELECT sink, count(*), min(at), min(error), count(*) FILTER (WHERE ready_at IS NULL)
FROM stage_outbox
GROUP BY sink
ORDER BY sink;
