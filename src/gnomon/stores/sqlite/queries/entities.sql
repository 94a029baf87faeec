-- Entities as the outside sees them (write, get, list …), and what every save consists of (`save_…`).

-- name: holds_lease
SELECT 1 FROM shard_lock WHERE shard_id = :shard AND lease_guid = :lease_guid;

-- name: get_entity
SELECT entity_key, shard_id, epoch, version, changed_at, doc FROM entity WHERE entity_key = :entity_key;

-- name: get_many_entities
SELECT i.key, e.entity_key, e.shard_id, e.epoch, e.version, e.changed_at, e.doc
FROM json_each(:entity_keys) AS i
CROSS JOIN entity AS e
WHERE e.entity_key = i.value;

-- name: list_entities
SELECT entity_key, shard_id, epoch, version, changed_at, doc
FROM entity
WHERE entity_key >= :since AND entity_key < :prefix_end AND entity_key <> :after AND doc IS NOT NULL
ORDER BY entity_key
LIMIT :limit;

-- name: write_create
-- Into a tombstone's place with the next epoch; its states are not the new one's.
INSERT INTO entity (entity_key, shard_id, epoch, version, changed_at, saves, doc)
VALUES (:entity_key, :shard, 1, 1, :now, :saves, :doc)
ON CONFLICT (entity_key) DO UPDATE SET
    epoch = entity.epoch + 1, version = 1, changed_at = :now, saves = entity.saves + :saves,
    keeps_states = 0, doc = :doc
WHERE entity.doc IS NULL
RETURNING epoch, version, saves;

-- name: write_change
-- Compare-and-set. Without a document: a tombstone, which remembers whether it has states.
UPDATE entity SET
    version = version + 1, changed_at = :now, saves = saves + :saves, doc = :doc,
    keeps_states = :doc IS NULL AND EXISTS (SELECT 1 FROM stage_state WHERE entity_key = :entity_key)
WHERE entity_key = :entity_key AND epoch = :epoch AND version = :version AND doc IS NOT NULL
RETURNING epoch, version, saves;

-- name: save_note
-- By position.
INSERT INTO entity_change (shard_id, entity_key, epoch, version, depth, at, root, author, paths)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: changes
SELECT version, paths, author, root, depth, at
FROM entity_change
WHERE entity_key = :entity_key
ORDER BY epoch DESC, version DESC
LIMIT :limit;

-- name: changes_since
SELECT version, paths, author, root, depth, at
FROM entity_change
WHERE entity_key = :entity_key AND epoch = :epoch AND version > :since
ORDER BY version;

-- name: save_changed
-- What was fed already stays so since the change that it was fed for first.
INSERT INTO changed_entity (shard_id, entity_key, epoch, since, seq, first_at)
VALUES (:shard, :entity_key, :epoch, :version - 1, :seq, :now)
ON CONFLICT (entity_key) DO UPDATE SET seq = changed_entity.seq + 1;

-- name: write_drop_rows
DELETE FROM stage_queue WHERE shard_id = :shard AND entity_key = :entity_key;

-- name: write_drop_changed
DELETE FROM changed_entity WHERE entity_key = :entity_key;

-- name: save_drop_states
DELETE FROM stage_state WHERE entity_key = :entity_key;

-- name: write_states
SELECT stage, version, revision, body, type FROM stage_state WHERE entity_key = :entity_key;

-- name: state
SELECT version, revision, body, type FROM stage_state WHERE entity_key = :entity_key AND stage = :stage;

-- name: save_state
INSERT INTO stage_state (shard_id, entity_key, stage, version, revision, type, body)
VALUES (:shard, :entity_key, :stage, :version, :revision, :type, :body)
ON CONFLICT (entity_key, stage) DO UPDATE SET
    version = :version, revision = :revision, type = :type, body = :body;

-- name: purge_changes
-- What nobody was asked about yet stays, however old it is.
DELETE FROM entity_change
WHERE (entity_key, epoch, version) IN (
    SELECT c.entity_key, c.epoch, c.version
    FROM entity_change AS c
    WHERE c.at < :changed_before
        AND NOT EXISTS (
            SELECT 1 FROM changed_entity AS f
            WHERE f.entity_key = c.entity_key AND f.epoch = c.epoch AND f.since < c.version
        )
    ORDER BY c.at
    LIMIT :limit
);

-- name: purge_tombstones
SELECT entity_key FROM entity
WHERE keeps_states = 1 AND changed_at < :deleted_before
ORDER BY changed_at
LIMIT :limit;

-- name: purge_emptied
UPDATE entity SET keeps_states = 0 WHERE entity_key = :entity_key;

-- name: save_entity
-- By position.
UPDATE entity SET version = ?, saves = ?, doc = ?, changed_at = ? WHERE entity_key = ?;

-- name: save_count
UPDATE entity SET saves = :saves WHERE entity_key = :entity_key;

-- name: save_publish
-- Not due before an earlier one of the same entity and sink, and not at all behind one that is
-- quarantined.
INSERT INTO stage_outbox (
    shard_id, entity_key, sink, n, ready_at, at, epoch, version, root, author, paths, key,
    state_version, state_revision, state_type, state_body, doc
)
VALUES (
    :shard, :entity_key, :sink, :n,
    CASE
        WHEN NOT EXISTS (
            SELECT 1 FROM stage_outbox AS q INDEXED BY stage_outbox_parked_idx
            WHERE q.ready_at IS NULL AND q.entity_key = :entity_key AND q.sink = :sink
        ) THEN max(:now, coalesce(
            (
                SELECT o.ready_at FROM stage_outbox AS o
                WHERE o.entity_key = :entity_key AND o.sink = :sink
                ORDER BY o.n DESC
                LIMIT 1
            ), 0
        ))
    END,
    :now, :epoch, :version, :root, :author, :paths, :key, :state_version, :state_revision,
    :state_type, :state_body, :doc
);

-- name: save_has_relay
SELECT EXISTS (SELECT 1 FROM stage WHERE name = '');
