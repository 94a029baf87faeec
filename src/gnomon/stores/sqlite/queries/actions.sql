-- name: create
-- An id that lives, or a generation that was finished before, is left alone: no row is changed.
INSERT INTO scheduled_action (
    id, shard_id, guid, state, queue, priority, timeout_us, retention_us, keyed,
    created_at, updated_at, scheduled_at, occurrence_no, occurrence_at, expires_at, creator, spec
)
SELECT
    :id, :shard, :guid, 'active', :queue, :priority, :timeout_us, :retention_us, :keyed,
    :now, :now, :scheduled_at, 1, :occurrence_at, :expires_at, :creator, :spec
WHERE NOT EXISTS (SELECT 1 FROM finished_action WHERE id = :id AND guid = :guid)
ON CONFLICT DO NOTHING;

-- name: create_after
SELECT coalesce(max(rowid), 0) FROM scheduled_action;

-- name: create_bulk
-- The same for many at once, as JSON arrays; `packed` has their guids, 16 bytes each. Only a guid out
-- of an idempotency key can have been there before.
INSERT INTO scheduled_action (
    id, shard_id, guid, state, queue, priority, timeout_us, retention_us, keyed,
    created_at, updated_at, scheduled_at, occurrence_no, occurrence_at, expires_at, creator, spec
)
SELECT
    json_extract(d.value, '$[0]'), json_extract(d.value, '$[1]'),
    substr(:packed, d.key * 16 + 1, 16), 'active', json_extract(d.value, '$[2]'),
    json_extract(d.value, '$[3]'), json_extract(d.value, '$[4]'), json_extract(d.value, '$[5]'),
    json_extract(d.value, '$[6]'), :now, :now, json_extract(d.value, '$[7]'), 1,
    json_extract(d.value, '$[8]'), json_extract(d.value, '$[9]'), :creator,
    json_extract(d.value, '$[10]')
FROM json_each(:drafts) AS d
WHERE NOT (json_extract(d.value, '$[6]') AND EXISTS (
    SELECT 1 FROM finished_action AS f
    WHERE f.id = json_extract(d.value, '$[0]') AND f.guid = substr(:packed, d.key * 16 + 1, 16)
))
ON CONFLICT DO NOTHING;

-- name: append_incoming_bulk
-- What was stored since: new rows are the last ones.
INSERT INTO incoming_queue (shard_id, created_at, guid, queue, priority, scheduled_at)
SELECT shard_id, updated_at, guid, queue, priority, scheduled_at
FROM scheduled_action
WHERE rowid > :before;

-- name: append_incoming
INSERT INTO incoming_queue (shard_id, created_at, guid, queue, priority, scheduled_at)
VALUES (:shard, :now, :guid, :queue, :priority, :scheduled_at);

-- name: append_incoming_of_action
-- The same out of the action's own row, after a change that kept its spec.
INSERT INTO incoming_queue (shard_id, created_at, guid, queue, priority, scheduled_at)
SELECT shard_id, :now, guid, queue, priority, scheduled_at FROM scheduled_action WHERE id = :id;

-- name: replace
UPDATE scheduled_action SET
    guid = :guid, state = 'active', queue = :queue, priority = :priority,
    timeout_us = :timeout_us, retention_us = :retention_us, keyed = :keyed, updated_at = :now,
    scheduled_at = :scheduled_at, occurrence_no = 1, occurrence_at = :occurrence_at,
    expires_at = :expires_at, attempts = 0, succeeded = 0, failed = 0, interrupted = 0,
    consecutive_failures = 0, consecutive_interruptions = 0, occurrence_failures = 0,
    last_attempt = NULL, series = NULL, reason = NULL, paused_until = NULL, spec = :spec
WHERE id = :id;

-- name: delete
DELETE FROM scheduled_action WHERE id = :id;

-- name: pause
UPDATE scheduled_action SET
    guid = :guid, state = 'paused', keyed = 0, updated_at = :now, scheduled_at = NULL,
    series = coalesce(series, guid), reason = :reason, paused_until = :paused_until
WHERE id = :id;

-- name: resume
UPDATE scheduled_action SET
    guid = :guid, state = 'active', keyed = 0, updated_at = :now, scheduled_at = :scheduled_at,
    occurrence_at = :occurrence_at, expires_at = :expires_at, series = coalesce(series, guid),
    reason = NULL, paused_until = NULL
WHERE id = :id;

-- name: run_now
UPDATE scheduled_action SET
    guid = :guid, keyed = 0, updated_at = :now, scheduled_at = :now,
    occurrence_no = occurrence_no + (attempts > 0), occurrence_at = :now,
    expires_at = :expires_at, occurrence_failures = 0, series = coalesce(series, guid)
WHERE id = :id;

-- name: change_archive
-- Archive a generation that a user ended. Its attempt in flight counts as interrupted: it was made.
INSERT INTO finished_action (
    id, shard_id, guid, state, queue, priority, keyed, created_at, updated_at, occurrence_no,
    occurrence_at, attempts, succeeded, failed, interrupted, consecutive_failures,
    consecutive_interruptions, occurrence_failures, reason, finished_at, purge_at, last_attempt, spec
)
SELECT
    id, shard_id, guid, 'cancelled', queue, priority, keyed, created_at, :now, occurrence_no,
    occurrence_at, attempts + flight, succeeded, failed, interrupted + flight, consecutive_failures,
    consecutive_interruptions, occurrence_failures, :reason, :now, :now + retention_us,
    last_attempt, spec
FROM (
    SELECT
        a.*,
        EXISTS (
            SELECT 1 FROM processing_queue AS q
            WHERE q.shard_id = a.shard_id AND q.guid = a.guid AND q.running = 1
        ) AS flight
    FROM scheduled_action AS a
    WHERE a.id = :id AND a.retention_us > 0
);

-- name: change_log_attempt
-- Close the attempt in flight of the generation that goes; its result, if it comes, is late.
INSERT INTO attempt_log (
    shard_id, id, guid, attempt_id, attempt_no, occurrence_no, began_at, outcome, owner
)
SELECT
    a.shard_id, a.id, a.guid, q.attempt_id, q.attempts, a.occurrence_no, q.began_at,
    :outcome, q.owner
FROM scheduled_action AS a
JOIN processing_queue AS q ON q.shard_id = a.shard_id AND q.guid = a.guid
WHERE a.id = :id AND q.running = 1
ON CONFLICT DO NOTHING;

-- name: change_drop_row
-- A generation ends, and with it its row in the processing queue: left there until its time it would
-- be in the way of others. An attempt that runs keeps its row until it ends.
DELETE FROM processing_queue WHERE guid = :guid AND running = 0;

-- name: repeat_live
-- A repeat is acknowledged only by a write of its own: then the first one is durable too.
UPDATE scheduled_action SET keyed = keyed WHERE id = :id;

-- name: repeat_finished
UPDATE finished_action SET keyed = keyed WHERE id = :id AND guid = :guid;

-- name: get_live
SELECT * FROM live_action WHERE id = :id;

-- name: get_progress
-- What a running attempt reported. An attempt that ended leaves nothing, or what its id tells apart.
SELECT at, fraction, said FROM attempt_progress WHERE id = :id AND attempt_id = :attempt_id;

-- name: get_finished
SELECT
    id, shard_id, guid, state, created_at, updated_at, occurrence_no, occurrence_at, attempts,
    succeeded, failed, interrupted, consecutive_failures, consecutive_interruptions,
    occurrence_failures, attempt_id, began_at, reason, finished_at, last_attempt, spec
FROM finished_action
WHERE id = :id AND purge_at > :now
ORDER BY finished_at DESC, guid DESC
LIMIT 1;

-- name: repeat_generation
-- A finished generation, for the sake of repeats: also when its retention is over.
SELECT
    id, shard_id, guid, state, created_at, updated_at, occurrence_no, occurrence_at, attempts,
    succeeded, failed, interrupted, consecutive_failures, consecutive_interruptions,
    occurrence_failures, attempt_id, began_at, reason, finished_at, last_attempt, spec
FROM finished_action
WHERE id = :id AND guid = :guid
ORDER BY finished_at DESC
LIMIT 1;

-- name: list_attempts
-- The log, and from the finished ones the attempts that are in no log: plain first-time successes.
SELECT
    attempt_id, attempt_no, occurrence_no, began_at, ended_at, outcome, error, answer, owner,
    NULL AS written
FROM attempt_log
WHERE id = :id
UNION ALL
SELECT
    f.attempt_id, f.attempts, f.occurrence_no, f.began_at, f.finished_at, 'succeeded', NULL, NULL,
    NULL, f.last_attempt
FROM finished_action AS f
WHERE f.id = :id AND f.attempt_id IS NOT NULL AND f.purge_at > :now
    AND NOT EXISTS (
        SELECT 1 FROM attempt_log AS l
        WHERE l.shard_id = f.shard_id AND l.attempt_id = f.attempt_id
    )
ORDER BY 4 DESC, 2 DESC
LIMIT :limit;

-- name: count
SELECT state, count(*) AS count FROM scheduled_action GROUP BY state
UNION ALL
SELECT state, count(*) FROM finished_action WHERE purge_at > :now GROUP BY state;

-- name: list_due
-- What a lane holds that is due before a moment.
SELECT a.id
FROM (
    SELECT guid FROM processing_queue INDEXED BY processing_queue_lane_idx
    WHERE shard_id = :shard AND queue = :queue AND priority = :priority AND need = :need
        AND scheduled_at < :before
    ORDER BY scheduled_at
    LIMIT :limit
) AS d
JOIN scheduled_action AS a ON a.guid = d.guid;

-- name: list_due_arrived
-- What stands in the incoming queue of a shard, due or not.
SELECT a.id
FROM (
    SELECT guid FROM incoming_queue WHERE shard_id = :shard ORDER BY created_at, guid LIMIT :limit
) AS d
JOIN scheduled_action AS a ON a.guid = d.guid;
