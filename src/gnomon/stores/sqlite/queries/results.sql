-- name: finish_plain_archive
-- First-time successes, all at once: `told` has the attempt of each that had an answer, `packed` its
-- guid and attempt id, 16 bytes and 16 bytes. A retention of nothing leaves nothing.
INSERT INTO finished_action (
    id, shard_id, guid, state, queue, priority, keyed, created_at, updated_at, occurrence_no,
    occurrence_at, attempts, succeeded, failed, interrupted, consecutive_failures,
    consecutive_interruptions, occurrence_failures, attempt_id, began_at, finished_at, purge_at,
    last_attempt, spec
)
SELECT
    a.id, a.shard_id, a.guid, 'done', a.queue, a.priority, a.keyed, a.created_at, a.updated_at,
    a.occurrence_no, a.occurrence_at, a.attempts + 1, a.succeeded + 1, a.failed, a.interrupted, 0,
    0, 0, q.attempt_id, q.began_at, :now, :now + a.retention_us,
    coalesce(s.value, a.last_attempt), a.spec
FROM json_each(:told) AS s
CROSS JOIN processing_queue AS q
CROSS JOIN scheduled_action AS a
WHERE q.guid = substr(:packed, s.key * 32 + 1, 16)
    AND q.attempt_id = substr(:packed, s.key * 32 + 17, 16) AND q.running = 1
    AND a.shard_id = q.shard_id AND a.guid = q.guid AND a.retention_us > 0;

-- name: finish_plain_fence
-- Their fence: each attempt runs, in the current generation. The rows go; how many, decides.
DELETE FROM processing_queue
WHERE guid IN (
    SELECT q.guid
    FROM json_each(:told) AS s
    CROSS JOIN processing_queue AS q
    CROSS JOIN scheduled_action AS a
    WHERE q.guid = substr(:packed, s.key * 32 + 1, 16)
        AND q.attempt_id = substr(:packed, s.key * 32 + 17, 16) AND q.running = 1
        AND a.shard_id = q.shard_id AND a.guid = q.guid
);

-- name: finish_plain_remove
DELETE FROM scheduled_action
WHERE rowid IN (
    SELECT a.rowid
    FROM json_each(:told) AS s
    CROSS JOIN scheduled_action AS a
    WHERE a.guid = substr(:packed, s.key * 32 + 1, 16)
);

-- name: finish_fence
-- The fence of every other result: the row carries the attempt, and it runs or was swept.
SELECT q.swept
FROM processing_queue AS q
JOIN scheduled_action AS a ON a.shard_id = q.shard_id AND a.guid = q.guid
WHERE q.shard_id = :shard AND q.guid = :guid AND q.attempt_id = :attempt_id
    AND (q.running = 1 OR q.swept = 1);

-- name: settle_fence
-- Everything that was read of a lapsed row must still be so.
SELECT q.owner
FROM processing_queue AS q
JOIN scheduled_action AS a ON a.shard_id = q.shard_id AND a.guid = q.guid
WHERE q.shard_id = :shard AND q.guid = :guid AND (:running = 0 OR q.attempt_id = :attempt_id)
    AND q.running = :running AND q.scheduled_at = :seen_at;

-- name: end_archive
-- A retention of nothing leaves nothing.
INSERT INTO finished_action (
    id, shard_id, guid, state, queue, priority, keyed, created_at, updated_at, occurrence_no,
    occurrence_at, attempts, succeeded, failed, interrupted, consecutive_failures,
    consecutive_interruptions, occurrence_failures, attempt_id, began_at, reason, finished_at,
    purge_at, last_attempt, spec
)
SELECT
    id, shard_id, guid, :state, queue, priority, keyed, created_at, updated_at, :occurrence_no,
    coalesce(:occurrence_at, occurrence_at),
    attempts + :succeeded + :failed + :interrupted,
    succeeded + :succeeded, failed + :failed, interrupted + :interrupted, :consecutive_failures,
    :consecutive_interruptions, :occurrence_failures, :attempt_id, :began_at, :reason, :now,
    :now + retention_us, coalesce(:last_attempt, last_attempt), spec
FROM scheduled_action
WHERE shard_id = :shard AND guid = :guid AND retention_us > 0;

-- name: end_remove
DELETE FROM scheduled_action WHERE shard_id = :shard AND guid = :guid;

-- name: end_remove_row
DELETE FROM processing_queue WHERE shard_id = :shard AND guid = :guid;

-- name: finish_delete_stale
-- The row of an attempt that ended, and whose generation is gone.
DELETE FROM processing_queue
WHERE guid = :guid
    AND NOT EXISTS (SELECT 1 FROM scheduled_action AS a WHERE a.shard_id = :shard AND a.guid = :guid);

-- name: continue_action
UPDATE scheduled_action SET
    occurrence_no = :occurrence_no, occurrence_at = coalesce(:occurrence_at, occurrence_at),
    expires_at = :expires_at,
    attempts = attempts + :succeeded + :failed + :interrupted,
    succeeded = succeeded + :succeeded, failed = failed + :failed,
    interrupted = interrupted + :interrupted, consecutive_failures = :consecutive_failures,
    consecutive_interruptions = :consecutive_interruptions,
    occurrence_failures = :occurrence_failures, last_attempt = coalesce(:last_attempt, last_attempt)
WHERE shard_id = :shard AND guid = :guid;

-- name: finish_reschedule
-- The attempt id stays, so that a repeat of this result is recognised.
UPDATE processing_queue SET scheduled_at = :scheduled_at, running = 0, swept = 0
WHERE shard_id = :shard AND guid = :guid;

-- name: finish_hand_back
-- The attempt was not made: its begin is taken back. Its id stays, as above.
UPDATE processing_queue SET
    scheduled_at = :scheduled_at, running = 0, attempts = attempts - 1, need = :need
WHERE shard_id = :shard AND guid = :guid AND attempt_id = :attempt_id AND running = 1
    AND EXISTS (SELECT 1 FROM scheduled_action AS a WHERE a.shard_id = :shard AND a.guid = :guid);

-- name: settle_reschedule
UPDATE processing_queue SET
    scheduled_at = :scheduled_at, swept = CASE running WHEN 1 THEN 1 ELSE swept END, running = 0
WHERE shard_id = :shard AND guid = :guid;

-- name: log_attempt
-- A result that takes back an interruption, or comes late, overwrites what the log said.
INSERT INTO attempt_log (
    shard_id, id, guid, attempt_id, attempt_no, occurrence_no, began_at, ended_at, outcome,
    error, answer, owner
)
VALUES (
    :shard, :id, :guid, :attempt_id, :attempt_no, :occurrence_no, :began_at, :ended_at, :outcome,
    :error, :answer, :owner
)
ON CONFLICT (shard_id, attempt_id, began_at) DO UPDATE SET
    ended_at = :ended_at, outcome = :outcome, error = :error, answer = :answer;

-- name: finish_logged_outcome
SELECT outcome FROM attempt_log
WHERE shard_id = :shard AND attempt_id = :attempt_id AND began_at = :began_at;

-- name: finish_recorded
-- Without a row in the log: recorded if its action ended by it, or goes on after it.
SELECT 1 FROM finished_action WHERE id = :id AND guid = :guid AND attempt_id = :attempt_id
UNION ALL
SELECT 1 FROM processing_queue
WHERE shard_id = :shard AND guid = :guid AND attempt_id = :attempt_id AND running = 0 AND swept = 0;
