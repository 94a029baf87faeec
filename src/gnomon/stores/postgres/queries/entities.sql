-- Entities as the outside sees them, and what every save of one consists of. See actions.sql about
-- `one-shard:`, and work.sql about plans.
--
-- Who writes anything that belongs to an entity locks its row first, and what else the decision needs
-- is read by a statement of its own after that: only then it is as it stays. A row that is locked is
-- found again by its ctid. Entities are locked in the order of (shard, key).

-- name: save_lock shard-local
-- $1 shards, $2 keys
SELECT u.place, e.row_id, e.epoch, e.version, e.lives
FROM unnest($1::int[], $2::text[]) WITH ORDINALITY AS u (shard_id, entity_key, place)
CROSS JOIN LATERAL (
    SELECT n.ctid AS row_id, n.epoch, n.version, n.doc IS NOT NULL AS lives
    FROM /*schema*/entity AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key /*one-shard: AND n.shard_id = $3*/
    LIMIT 1
    FOR NO KEY UPDATE
) AS e;

-- name: save_lock_free shard-local
-- The same of those that nobody else has locked; of the others there is no row id.
-- $1 shards, $2 keys
SELECT u.place, e.row_id, e.epoch, e.version, e.lives
FROM unnest($1::int[], $2::text[]) WITH ORDINALITY AS u (shard_id, entity_key, place)
CROSS JOIN LATERAL (
    SELECT n.ctid AS row_id
    FROM /*schema*/entity AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key /*one-shard: AND n.shard_id = $3*/
    LIMIT 1
) AS o
LEFT JOIN LATERAL (
    SELECT n.ctid AS row_id, n.epoch, n.version, n.doc IS NOT NULL AS lives
    FROM /*schema*/entity AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key /*one-shard: AND n.shard_id = $3*/
    LIMIT 1
    FOR NO KEY UPDATE SKIP LOCKED
) AS e ON true;

-- name: write_create shard-local
-- Entities whose key was never used; who was there first stays.
-- $1 shards, $2 keys, $3 documents
INSERT INTO /*schema*/entity (shard_id, entity_key, epoch, version, doc, changed_at, saves, keeps_states)
SELECT l.shard_id, u.entity_key, 1, 1, u.doc, statement_timestamp(), 1, false
FROM unnest($1::int[], $2::text[], $3::text[]) AS u (shard_id, entity_key, doc)
JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id
WHERE true /*one-shard: AND l.shard_id = $4*/
ON CONFLICT (shard_id, entity_key) DO NOTHING
RETURNING entity_key, changed_at;

-- name: write_change shard-local
-- Change, delete (no document) or make anew what is locked.
-- $1 row ids, $2 epochs, $3 versions, $4 documents
UPDATE /*schema*/entity AS e
SET epoch = u.epoch, version = u.version, doc = u.doc, changed_at = statement_timestamp(),
    saves = e.saves + 1, keeps_states = u.doc IS NULL
FROM unnest($1::tid[], $2::bigint[], $3::bigint[], $4::text[]) AS u (row_id, epoch, version, doc)
WHERE e.ctid = u.row_id /*one-shard: AND e.shard_id = $5*/
RETURNING e.entity_key, e.changed_at;

-- name: save_has_relay global
SELECT EXISTS (SELECT 1 FROM /*schema*/stage AS r WHERE r.name = '') AS is_known;

-- name: save_touch shard-local
-- A state of what is locked changes from outside: see claim_lock.
-- $1 row ids
UPDATE /*schema*/entity AS e SET saves = e.saves + 1
WHERE e.ctid = ANY ($1::tid[]) /*one-shard: AND e.shard_id = $2*/;

-- name: save_note shard-local
-- $1 shards, $2 keys, $3 epochs, $4 versions, $5 paths, $6 authors, $7 roots, $8 depths, $9 at
INSERT INTO /*schema*/entity_change (shard_id, entity_key, epoch, version, paths, author, root, depth, at)
SELECT l.shard_id, u.entity_key, u.epoch, u.version, u.paths, u.author, u.root, u.depth, u.at
FROM unnest(
    $1::int[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::uuid[],
    $8::int[], $9::timestamptz[]
) AS u (shard_id, entity_key, epoch, version, paths, author, root, depth, at)
JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id
WHERE true /*one-shard: AND l.shard_id = $10*/;

-- name: save_changed shard-local
-- The stages are to be asked about what changes after a version. See 0002 about `seq`.
-- $1 shards, $2 keys, $3 epochs, $4 asked about up to these versions
INSERT INTO /*schema*/changed_entity AS f (shard_id, entity_key, seq, epoch, since, first_at)
SELECT
    l.shard_id, u.entity_key, (date_part('epoch', statement_timestamp()) * 1000000)::bigint, u.epoch,
    u.since, statement_timestamp()
FROM unnest($1::int[], $2::text[], $3::bigint[], $4::bigint[]) AS u (shard_id, entity_key, epoch, since)
JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id
WHERE true /*one-shard: AND l.shard_id = $5*/
ON CONFLICT (shard_id, entity_key) DO UPDATE SET seq = f.seq + 1;

-- name: write_drop_changed shard-local
-- Nobody is to be asked about these any more. Their entities are locked.
-- $1 shards, $2 keys
DELETE FROM /*schema*/changed_entity AS f
WHERE f.ctid = ANY (ARRAY(
    SELECT r.row_id
    FROM unnest($1::int[], $2::text[]) AS u (shard_id, entity_key)
    CROSS JOIN LATERAL (
        SELECT n.ctid AS row_id
        FROM /*schema*/changed_entity AS n
        WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key /*one-shard: AND n.shard_id = $3*/
        LIMIT 1
    ) AS r
)) /*one-shard: AND f.shard_id = $3*/;

-- name: write_lock_rows shard-local
-- All queue rows of some entities, which are locked: a timer that fires asks nobody.
-- $1 shards, $2 keys
SELECT q.row_id
FROM unnest($1::int[], $2::text[]) AS u (shard_id, entity_key)
CROSS JOIN LATERAL (
    SELECT n.ctid AS row_id
    FROM /*schema*/stage_queue AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key /*one-shard: AND n.shard_id = $3*/
    ORDER BY n.stage
    FOR UPDATE
) AS q;

-- name: save_publish shard-local
-- Outbox rows of saves of this transaction, with the state of a stage if one is named, as it is now, and
-- the document: as it is now, unless more versions came after this one. Behind a row that is quarantined
-- they have no due time.
-- $1 shards, $2 keys, $3 sinks, $4 stages, $5 authors, $6 roots, $7 paths, $8 save keys, $9 at, $10 documents
-- (NULL: the last), $11 versions after this one, $12 saves after this one
INSERT INTO /*schema*/stage_outbox (
    shard_id, entity_key, sink, n, epoch, version, author, root, paths, key, doc, state_version,
    state_revision, state_type, state_body, attempts, at, ready_at
)
SELECT
    e.shard_id, e.entity_key, u.sink, e.saves - coalesce(u.saves, 0), e.epoch,
    e.version - coalesce(u.versions, 0), u.author, u.root, u.paths, u.key, coalesce(u.doc, e.doc),
    s.version, s.revision, s.type, s.body, 0, u.at,
    CASE WHEN b.is_parked THEN NULL ELSE greatest(u.at, b.ready_at) END
FROM unnest(
    $1::int[], $2::text[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::text[], $8::text[],
    $9::timestamptz[], $10::text[], $11::int[], $12::int[]
) AS u (shard_id, entity_key, sink, stage, author, root, paths, key, at, doc, versions, saves)
CROSS JOIN LATERAL (
    SELECT n.*
    FROM /*schema*/entity AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key /*one-shard: AND n.shard_id = $13*/
    LIMIT 1
) AS e
LEFT JOIN LATERAL (
    SELECT t.*
    FROM /*schema*/stage_state AS t
    WHERE t.shard_id = u.shard_id AND t.entity_key = u.entity_key AND t.stage = u.stage
      /*one-shard: AND t.shard_id = $13*/
    LIMIT 1
) AS s ON true
LEFT JOIN LATERAL (
    SELECT q.ready_at, q.ready_at IS NULL AS is_parked
    FROM /*schema*/stage_outbox AS q
    WHERE q.shard_id = u.shard_id AND q.entity_key = u.entity_key AND q.sink = u.sink
      /*one-shard: AND q.shard_id = $13*/
    ORDER BY q.n DESC
    LIMIT 1
) AS b ON true;

-- name: write_states shard-local
-- $1 shards, $2 keys
SELECT u.place, s.stage
FROM unnest($1::int[], $2::text[]) WITH ORDINALITY AS u (shard_id, entity_key, place)
CROSS JOIN LATERAL (
    SELECT n.stage
    FROM /*schema*/stage_state AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key /*one-shard: AND n.shard_id = $3*/
    OFFSET 0
) AS s;

-- name: save_drop_states shard-local
-- All states of some entities, which are locked.
-- $1 shards, $2 keys
DELETE FROM /*schema*/stage_state AS s
WHERE s.ctid = ANY (ARRAY(
    SELECT r.row_id
    FROM unnest($1::int[], $2::text[]) AS u (shard_id, entity_key)
    CROSS JOIN LATERAL (
        SELECT n.ctid AS row_id
        FROM /*schema*/stage_state AS n
        WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key /*one-shard: AND n.shard_id = $3*/
        OFFSET 0
    ) AS r
)) /*one-shard: AND s.shard_id = $3*/
RETURNING s.shard_id;

-- name: swap_state shard-local
-- $1 shards, $2 keys, $3 stages
SELECT s.version
FROM unnest($1::int[], $2::text[], $3::text[]) AS u (shard_id, entity_key, stage)
CROSS JOIN LATERAL (
    SELECT n.version
    FROM /*schema*/stage_state AS n
    WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key AND n.stage = u.stage
      /*one-shard: AND n.shard_id = $4*/
    LIMIT 1
) AS s;

-- name: save_state shard-local
-- What was there was compared before, under the lock of the entity.
-- $1 shards, $2 keys, $3 stages, $4 versions, $5 revisions, $6 types, $7 bodies
INSERT INTO /*schema*/stage_state (shard_id, entity_key, stage, version, revision, type, body)
SELECT l.shard_id, u.entity_key, u.stage, u.version, u.revision, u.type, u.body
FROM unnest(
    $1::int[], $2::text[], $3::text[], $4::bigint[], $5::int[], $6::text[], $7::bytea[]
) AS u (shard_id, entity_key, stage, version, revision, type, body)
JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id
WHERE true /*one-shard: AND l.shard_id = $8*/
ON CONFLICT (shard_id, entity_key, stage) DO UPDATE
SET version = excluded.version, revision = excluded.revision, type = excluded.type,
    body = excluded.body;

-- name: get_entity shard-local
-- $1 shard, $2 key
SELECT e.entity_key, e.shard_id, e.epoch, e.version, e.doc, e.changed_at
FROM /*schema*/entity AS e
WHERE e.shard_id = $1::int AND e.entity_key = $2::text;

-- name: get_many_entities shard-local
-- Bytes are known without reading what they are of.
-- $1 shards, $2 keys, $3 bytes: the document that reaches them is the last
SELECT t.entity_key, t.shard_id, t.epoch, t.version, t.doc, t.changed_at, t.place
FROM (
    SELECT
        e.*, u.place, sum(coalesce(octet_length(e.doc), 0)) OVER (
            ORDER BY u.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS bytes_before
    FROM unnest($1::int[], $2::text[]) WITH ORDINALITY AS u (shard_id, entity_key, place)
    CROSS JOIN LATERAL (
        SELECT n.*
        FROM /*schema*/entity AS n
        WHERE n.shard_id = u.shard_id AND n.entity_key = u.entity_key /*one-shard: AND n.shard_id = $4*/
        LIMIT 1
    ) AS e
) AS t
WHERE t.bytes_before IS NULL OR t.bytes_before < $3::bigint
ORDER BY t.place;

-- name: state shard-local
-- An entity, and a stage's state of it.
-- $1 shard, $2 key, $3 stage
SELECT e.entity_key, e.shard_id, e.epoch, e.version, e.doc, e.changed_at,
       s.version AS state_version, s.revision AS state_revision, s.type AS state_type,
       s.body AS state_body
FROM /*schema*/entity AS e
LEFT JOIN LATERAL (
    SELECT t.*
    FROM /*schema*/stage_state AS t
    WHERE t.shard_id = $1::int AND t.entity_key = $2::text AND t.stage = $3::text
    LIMIT 1
) AS s ON true
WHERE e.shard_id = $1::int AND e.entity_key = $2::text;

-- name: list_entities many-shards
-- Each shard gives its first ones by its own index.
-- $1 after, $2 from, $3 below, $4 limit
SELECT f.entity_key, f.shard_id, f.epoch, f.version, f.doc, f.changed_at
FROM /*schema*/shard_lock AS l
CROSS JOIN LATERAL (
    SELECT e.*
    FROM /*schema*/entity AS e
    WHERE e.shard_id = l.shard_id AND e.entity_key > $1::text AND e.entity_key >= $2::text
      AND e.entity_key < $3::text AND e.doc IS NOT NULL
    ORDER BY e.entity_key
    LIMIT $4::int
) AS f
ORDER BY f.entity_key
LIMIT $4::int;

-- name: list_entities_citus global
-- The same for Citus, which does so by itself.
-- $1 after, $2 from, $3 below, $4 limit
SELECT e.entity_key, e.shard_id, e.epoch, e.version, e.doc, e.changed_at
FROM /*schema*/entity AS e
WHERE e.entity_key > $1::text AND e.entity_key >= $2::text AND e.entity_key < $3::text
  AND e.doc IS NOT NULL
ORDER BY e.entity_key
LIMIT $4::int;

-- name: changes shard-local
-- $1 shard, $2 key, $3 limit
SELECT c.version, c.paths, c.author, c.root, c.depth, c.at
FROM /*schema*/entity_change AS c
WHERE c.shard_id = $1::int AND c.entity_key = $2::text
ORDER BY c.epoch DESC, c.version DESC
LIMIT $3::int;

-- name: purge_changes shard-local
-- Old change notes, but for those that somebody is still to be asked about.
-- $1 kept for, $2 limit
DELETE FROM /*schema*/entity_change AS c
WHERE c.ctid = ANY (ARRAY(
    SELECT n.ctid
    FROM /*schema*/entity_change AS n
    WHERE n.at <= statement_timestamp() - $1::interval
      AND NOT EXISTS (
          SELECT 1 FROM /*schema*/changed_entity AS f
          WHERE f.shard_id = n.shard_id AND f.entity_key = n.entity_key AND f.epoch = n.epoch
            AND f.since < n.version /*one-shard: AND f.shard_id = $3*/
      )
      /*one-shard: AND n.shard_id = $3*/
    LIMIT $2::int
)) /*one-shard: AND c.shard_id = $3*/
RETURNING c.shard_id;

-- name: purge_tombstones shard-local
-- Tombstones that have been so long enough, and still keep their states.
-- $1 kept for, $2 limit
SELECT e.shard_id, e.entity_key
FROM /*schema*/entity AS e
WHERE e.keeps_states AND e.changed_at <= statement_timestamp() - $1::interval
  /*one-shard: AND e.shard_id = $3*/
ORDER BY e.shard_id, e.entity_key
LIMIT $2::int;

-- name: purge_emptied shard-local
-- They are locked.
-- $1 row ids
UPDATE /*schema*/entity AS e SET keeps_states = false
WHERE e.ctid = ANY ($1::tid[]) /*one-shard: AND e.shard_id = $2*/;
