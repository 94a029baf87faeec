-- name: lane_with_row_after
-- Lanes of stages one by one, each found by one step in the index, with its earliest time.
SELECT stage, lane, ready_at
FROM stage_queue INDEXED BY stage_queue_ready_idx
WHERE shard_id = :shard AND status = 'ready' AND (stage, lane) > (:stage, :lane)
ORDER BY stage, lane, ready_at
LIMIT 1;

-- name: survey_times
SELECT
    (
        SELECT q.timer_at FROM stage_queue AS q INDEXED BY stage_queue_timer_idx
        WHERE q.shard_id = s.value AND q.timer_at IS NOT NULL
            AND q.status IN ('sleeping', 'ready')
        ORDER BY q.timer_at
        LIMIT 1
    ),
    EXISTS (SELECT 1 FROM stage_feed AS f WHERE f.shard_id = s.value)
FROM json_each(:shards) AS s;

-- name: survey_backfills
SELECT w.stage, w.shard_id
FROM json_each(:shards) AS s
CROSS JOIN stage_backfill AS w
WHERE w.shard_id = s.value AND w.ended = 0
ORDER BY w.stage, w.shard_id;

-- name: due_timers
SELECT timer_at, entity_id, stage, shard_id
FROM stage_queue INDEXED BY stage_queue_timer_idx
WHERE shard_id = :shard AND timer_at IS NOT NULL AND status IN ('sleeping', 'ready')
    AND timer_at <= :now
ORDER BY timer_at;

-- name: feed
SELECT first_at, entity_id, epoch, since, seq, shard_id
FROM stage_feed
WHERE shard_id = :shard
ORDER BY first_at;

-- name: answer_feed
DELETE FROM stage_feed WHERE entity_id = :id AND seq = :seq;

-- name: ask_since
UPDATE stage_feed SET since = max(since, :version) WHERE entity_id = :id AND epoch = :epoch;

-- name: peek
SELECT ready_at, entity_id, shard_id
FROM stage_queue INDEXED BY stage_queue_ready_idx
WHERE shard_id = :shard AND stage = :stage AND lane = :lane AND status = 'ready'
ORDER BY ready_at;

-- name: load_entities
-- This and the next one give rows in the order of the ids, and are read no further than wanted.
SELECT i.key, e.id, e.shard_id, e.epoch, e.version, e.changed_at, e.doc
FROM json_each(:ids) AS i
CROSS JOIN entity AS e
WHERE e.id = i.value AND e.doc IS NOT NULL;

-- name: load_states
SELECT i.key, s.entity_id, s.stage, s.version, s.revision, s.body, s.type
FROM json_each(:ids) AS i
CROSS JOIN entity AS e
CROSS JOIN stage_state AS s
WHERE e.id = i.value AND e.doc IS NOT NULL AND s.entity_id = i.value;

-- name: load_rows
SELECT json_group_array(json_array(
    q.entity_id, q.stage, q.shard_id, q.lane, q.status, q.ready_at, q.timer_at, q.first_at, q.seq,
    q.attempts, q.reasons, hex(q.root), q.depth, q.error, q.note
))
FROM json_each(:ids) AS i
CROSS JOIN stage_queue AS q
WHERE q.shard_id = (SELECT e.shard_id FROM entity AS e WHERE e.id = i.value)
    AND q.entity_id = i.value;

-- name: load_versions
SELECT json_group_array(json_array(e.id, e.epoch, e.version, e.saves))
FROM json_each(:ids) AS i
CROSS JOIN entity AS e
WHERE e.id = i.value AND e.doc IS NOT NULL;

-- name: load_states_of
SELECT s.entity_id, s.stage, s.version, s.revision, s.body, s.type
FROM json_each(:keys) AS k
CROSS JOIN stage_state AS s
WHERE s.entity_id = json_extract(k.value, '$[0]') AND s.stage = json_extract(k.value, '$[1]');

-- name: save_entity
-- By position.
UPDATE entity SET version = ?, saves = ?, doc = ?, changed_at = ? WHERE id = ?;

-- name: count_saves
UPDATE entity SET saves = :saves WHERE id = :id;

-- name: put_outgoing
-- Not due before an earlier one of the same entity and sink, and not at all behind one that is
-- quarantined.
INSERT INTO stage_outbox (
    shard_id, entity_id, sink, n, ready_at, at, epoch, version, root, author, paths, key,
    state_version, state_revision, state_type, state_body, doc
)
VALUES (
    :shard, :id, :sink, :n,
    CASE
        WHEN NOT EXISTS (
            SELECT 1 FROM stage_outbox AS q INDEXED BY stage_outbox_parked_idx
            WHERE q.ready_at IS NULL AND q.entity_id = :id AND q.sink = :sink
        ) THEN max(:now, coalesce(
            (
                SELECT o.ready_at FROM stage_outbox AS o
                WHERE o.entity_id = :id AND o.sink = :sink
                ORDER BY o.n DESC
                LIMIT 1
            ), 0
        ))
    END,
    :now, :epoch, :version, :root, :author, :paths, :key, :state_version, :state_revision,
    :state_type, :state_body, :doc
);

-- name: known_revision
SELECT revision FROM stage WHERE name = :stage;

-- name: declare
INSERT INTO stage (name, revision, first_seen_at, last_seen_at, debounce, watch, writes)
VALUES (:stage, :revision, :now, :now, :debounce, :watch, :writes)
ON CONFLICT (name) DO UPDATE SET
    revision = max(stage.revision, :revision), last_seen_at = :now, debounce = :debounce,
    watch = iif(:revision < stage.revision, stage.watch, :watch),
    writes = iif(:revision < stage.revision, stage.writes, :writes);

-- name: has_relay
SELECT EXISTS (SELECT 1 FROM stage WHERE name = '');

-- name: registered
SELECT
    s.name, s.revision, s.first_seen_at, s.last_seen_at, s.debounce, s.watch, s.writes, 0, 0, 0, 0
FROM stage AS s
ORDER BY s.name;

-- name: note_server
INSERT INTO stage_server (worker_id, stage, seen_at) VALUES (:worker, :stage, :now)
ON CONFLICT (worker_id, stage) DO UPDATE SET seen_at = :now;

-- name: drop_servers
-- What the worker does not serve any more, and workers of which nothing was heard for long.
DELETE FROM stage_server
WHERE (worker_id = :worker AND stage NOT IN (SELECT s.value FROM json_each(:stages) AS s))
    OR seen_at < :long_ago;

-- name: note_owner
INSERT INTO stage_owner (shard_id, lease_guid, worker_id) VALUES (:shard, :lease_guid, :worker)
ON CONFLICT (shard_id) DO UPDATE SET lease_guid = :lease_guid, worker_id = :worker
WHERE lease_guid <> :lease_guid;

-- name: servers
SELECT stage, worker_id FROM stage_server WHERE seen_at > :since;

-- name: openings
SELECT s.value, l.shard_id, l.lease_guid
FROM json_each(:stages) AS s
CROSS JOIN stage_owner AS o
CROSS JOIN shard_lock AS l
WHERE l.shard_id = o.shard_id AND l.lease_guid = o.lease_guid
    AND NOT EXISTS (
        SELECT 1 FROM stage_server AS v WHERE v.worker_id = o.worker_id AND v.stage = s.value
    )
ORDER BY s.value, l.shard_id;

-- name: forget_servers
DELETE FROM stage_server WHERE stage = :stage;

-- name: rename_stage
UPDATE stage SET name = :stage WHERE name = :old;

-- name: rename_queue
UPDATE OR REPLACE stage_queue SET stage = :stage WHERE stage = :old;

-- name: rename_states
UPDATE OR REPLACE stage_state SET stage = :stage WHERE stage = :old;

-- name: rename_backfills
UPDATE OR REPLACE stage_backfill SET stage = :stage WHERE stage = :old;

-- name: rename_outbox
UPDATE OR REPLACE stage_outbox SET sink = :stage WHERE sink = :old;

-- name: stages
SELECT
    s.name, s.revision, s.first_seen_at, s.last_seen_at, s.debounce, s.watch, s.writes,
    coalesce(q.waiting, 0), coalesce(q.background, 0),
    coalesce(q.parked, 0) + coalesce(o.undelivered, 0), coalesce(q.sleeping, 0)
FROM stage AS s
LEFT JOIN (
    SELECT
        stage,
        count(*) FILTER (WHERE status = 'ready' AND lane = 0) AS waiting,
        count(*) FILTER (WHERE status = 'ready' AND lane = 1) AS background,
        count(*) FILTER (WHERE status IN ('quarantined', 'looping')) AS parked,
        count(*) FILTER (WHERE status = 'sleeping') AS sleeping
    FROM stage_queue
    GROUP BY stage
) AS q ON q.stage = s.name
LEFT JOIN (
    SELECT sink, count(DISTINCT entity_id) AS undelivered
    FROM stage_outbox INDEXED BY stage_outbox_parked_idx
    WHERE ready_at IS NULL
    GROUP BY sink
) AS o ON o.sink = s.name
ORDER BY s.name;

-- name: forget
DELETE FROM stage WHERE name = :stage;

-- name: forget_queue
DELETE FROM stage_queue WHERE stage = :stage;

-- name: forget_states
DELETE FROM stage_state WHERE stage = :stage;

-- name: forget_backfills
DELETE FROM stage_backfill WHERE stage = :stage;

-- name: forget_outbox
DELETE FROM stage_outbox WHERE sink = :stage;

-- name: begin_backfill
-- No two walks of a stage begin at the same time, even if the clock stands still.
INSERT INTO stage_backfill (shard_id, stage, started_at, ended, cursor, reason)
SELECT l.shard_id, :stage, :now, 0, '', :reason FROM shard_lock AS l WHERE true
ON CONFLICT (shard_id, stage) DO UPDATE SET
    started_at = max(:now, stage_backfill.started_at + 1), ended = 0, cursor = '', reason = :reason;

-- name: last_backfill
SELECT max(started_at) FROM stage_backfill WHERE stage = :stage;

-- name: get_backfill
SELECT started_at, cursor, reason FROM stage_backfill
WHERE shard_id = :shard AND stage = :stage AND ended = 0;

-- name: background_count
-- No further than it matters.
SELECT count(*) FROM (
    SELECT 1 FROM stage_queue INDEXED BY stage_queue_ready_idx
    WHERE shard_id = :shard AND stage = :stage AND lane = 1 AND status = 'ready'
    LIMIT :backlog_max + 1
);

-- name: backfill_page
SELECT id FROM entity
WHERE shard_id = :shard AND id > :cursor AND doc IS NOT NULL
ORDER BY id
LIMIT :limit;

-- name: move_backfill
UPDATE stage_backfill SET cursor = coalesce(:cursor, cursor), ended = :cursor IS NULL
WHERE shard_id = :shard AND stage = :stage AND started_at = :started_at AND ended = 0;
