-- Saves on their way out. Of one entity and sink no row is due before an earlier one; what is
-- quarantined, and what is behind it, has no due time.

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
WHERE o.shard_id = :shard AND o.sink >= :sink AND o.ready_at IS NOT NULL
ORDER BY o.sink, o.ready_at, o.n
LIMIT 1;

-- name: outgoing
SELECT ready_at, n, entity_id
FROM stage_outbox INDEXED BY stage_outbox_ready_idx
WHERE shard_id = :shard AND sink = :sink AND ready_at <= :now
ORDER BY ready_at, n;

-- name: load_outgoing
-- In the order of the keys, and read no further than wanted.
SELECT
    o.n, o.entity_id, o.sink, o.shard_id, o.epoch, o.version, o.root, o.author, o.paths, o.key,
    o.attempts, o.at, o.state_version, o.state_revision, o.state_body, o.state_type, o.doc
FROM json_each(:keys) AS k
CROSS JOIN stage_outbox AS o
WHERE o.entity_id = json_extract(k.value, '$[0]') AND o.sink = :sink
    AND o.n = json_extract(k.value, '$[1]');

-- name: sent
DELETE FROM stage_outbox WHERE entity_id = :id AND sink = :sink AND n = :n;

-- name: unsent
UPDATE stage_outbox SET attempts = attempts + :counts, error = :error
WHERE entity_id = :id AND sink = :sink AND n = :n AND ready_at IS NOT NULL;

-- name: hold_back
-- With all later ones, so that none overtakes it.
UPDATE stage_outbox SET ready_at = :ready_at
WHERE entity_id = :id AND sink = :sink AND n >= :n AND ready_at < :ready_at;

-- name: quarantine
-- With all later ones.
UPDATE stage_outbox SET ready_at = NULL WHERE entity_id = :id AND sink = :sink AND n >= :n;

-- name: undelivered
-- The first save of each sink that is quarantined, as a row of the queue: see `rows`. What stands
-- beside min() is of the row that has it.
SELECT json_group_array(json_array(
    entity_id, sink, shard_id, 0, 'undelivered', NULL, NULL, at, n, attempts,
    '["save v' || version || '"]', hex(root), 0, error, NULL
))
FROM (
    SELECT *, min(n) FROM stage_outbox INDEXED BY stage_outbox_parked_idx
    WHERE ready_at IS NULL AND entity_id = :id
    GROUP BY entity_id, sink
    ORDER BY sink
);

-- name: undelivered_page
-- The same of all entities: see `parked`.
SELECT json_group_array(json_array(
    entity_id, sink, shard_id, 0, 'undelivered', NULL, NULL, at, n, attempts,
    '["save v' || version || '"]', hex(root), 0, error, NULL
))
FROM (
    SELECT *, min(n) FROM stage_outbox INDEXED BY stage_outbox_parked_idx
    WHERE ready_at IS NULL AND (entity_id, sink) > (:after_entity, :after_stage)
        AND (:stage IS NULL OR sink = :stage)
    GROUP BY entity_id, sink
    ORDER BY entity_id, sink
    LIMIT :limit
);

-- name: free_saves
UPDATE stage_outbox SET ready_at = :now, attempts = 0
WHERE ready_at IS NULL AND entity_id = :id AND sink = :stage;

-- name: free_saves_of_stage
UPDATE stage_outbox SET ready_at = :now, attempts = 0 WHERE ready_at IS NULL AND sink = :stage;

-- name: backlog
SELECT sink, count(*), min(at), min(error), count(*) FILTER (WHERE ready_at IS NULL)
FROM stage_outbox
GROUP BY sink
ORDER BY sink;
