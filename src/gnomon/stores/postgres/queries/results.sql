-- Recording what became of attempts. Everywhere: the processing row first, then the action row, as
-- `begin` locks them. See actions.sql about `one-shard:`.

-- name: finish_plain many-shards
-- The common case in one statement: attempts that succeeded and so end their actions, with nothing
-- else to tell. Gives what was ended; a row whose action is gone is removed and not given. (Joining
-- the two sets here would be a nested loop of all with all: 0.1 s for a thousand.)
-- $1 shards, $2 guids, $3 attempt ids
WITH fenced AS (
    DELETE FROM /*schema*/processing_queue AS q
    USING unnest($1::int[], $2::uuid[], $3::uuid[]) AS u (shard_id, guid, attempt_id)
    WHERE q.shard_id = u.shard_id AND q.guid = u.guid AND q.attempt_id = u.attempt_id
      AND (q.running OR q.swept)
    RETURNING q.shard_id, q.guid, q.attempt_id, q.began_at, q.swept
), gone AS (
    DELETE FROM /*schema*/scheduled_action AS a
    USING fenced AS f
    WHERE a.shard_id = f.shard_id AND a.guid = f.guid
    RETURNING
        a.shard_id, a.id, a.guid, a.spec, a.queue, a.priority, a.keyed, a.created_at, a.updated_at,
        a.occurrence_no, a.occurrence_at, a.attempts + 1 - f.swept::int AS attempts,
        a.succeeded + 1 AS succeeded, a.failed, a.interrupted - f.swept::int AS interrupted,
        f.attempt_id, f.began_at, f.swept, a.retention_us
), kept AS (
    INSERT INTO /*schema*/finished_action (
        shard_id, id, guid, spec, state, queue, priority, keyed, created_at, updated_at,
        occurrence_no, occurrence_at, attempts, succeeded, failed, interrupted,
        consecutive_failures, consecutive_interruptions, occurrence_failures, attempt_id, began_at,
        finished_at, purge_at
    )
    SELECT
        g.shard_id, g.id, g.guid, g.spec, 'done', g.queue, g.priority, g.keyed, g.created_at,
        g.updated_at, g.occurrence_no, g.occurrence_at, g.attempts, g.succeeded, g.failed,
        g.interrupted, 0, 0, 0, g.attempt_id, g.began_at, statement_timestamp(),
        statement_timestamp() + g.retention_us * interval '1 microsecond'
    FROM gone AS g
    WHERE g.retention_us > 0
)
SELECT g.attempt_id, g.swept FROM gone AS g;

-- name: finish_take shard-local
-- The fence of results that end their actions: who removes the processing row may write the rest.
-- $1 shards, $2 guids, $3 attempt ids
DELETE FROM /*schema*/processing_queue AS q
USING unnest($1::int[], $2::uuid[], $3::uuid[]) AS u (shard_id, guid, attempt_id)
WHERE q.shard_id = u.shard_id AND q.guid = u.guid AND q.attempt_id = u.attempt_id
  AND (q.running OR q.swept) /*one-shard: AND q.shard_id = $4*/
RETURNING q.attempt_id, q.swept;

-- name: finish_keep shard-local
-- The fence of results after which the action goes on; the attempt id stays, to know a repeat by.
-- The old row is joined in for its `swept`: RETURNING shows the new one. FOR UPDATE, for otherwise
-- the join could show a row as it was before a sweep that this statement had to wait for.
-- $1 shards, $2 guids, $3 attempt ids, $4 scheduled_at
WITH fenced AS (
    SELECT q.shard_id, q.guid, q.swept, u.scheduled_at
    FROM unnest($1::int[], $2::uuid[], $3::uuid[], $4::timestamptz[])
        AS u (shard_id, guid, attempt_id, scheduled_at)
    JOIN /*schema*/processing_queue AS q
        ON q.shard_id = u.shard_id AND q.guid = u.guid AND q.attempt_id = u.attempt_id
    WHERE (q.running OR q.swept) /*one-shard: AND q.shard_id = $5*/
    FOR UPDATE OF q
)
UPDATE /*schema*/processing_queue AS q
SET scheduled_at = f.scheduled_at, running = false, swept = false
FROM fenced AS f
WHERE q.shard_id = f.shard_id AND q.guid = f.guid /*one-shard: AND q.shard_id = $5*/
RETURNING q.attempt_id, f.swept;

-- name: settle_take shard-local
-- The fence of a lapsed row that ends its action: everything that was read of it.
-- $1 shards, $2 guids, $3 attempt ids (NULL: not running), $4 scheduled_at as read
DELETE FROM /*schema*/processing_queue AS q
USING unnest($1::int[], $2::uuid[], $3::uuid[], $4::timestamptz[])
    AS u (shard_id, guid, attempt_id, seen_at)
WHERE q.shard_id = u.shard_id AND q.guid = u.guid AND q.scheduled_at = u.seen_at
  AND CASE WHEN q.running THEN q.attempt_id = u.attempt_id ELSE u.attempt_id IS NULL END
  /*one-shard: AND q.shard_id = $5*/
RETURNING q.guid;

-- name: settle_keep shard-local
-- The fence of a lapsed row whose action goes on. An attempt that ran is now swept.
-- $1 shards, $2 guids, $3 attempt ids (NULL: not running), $4 scheduled_at as read, $5 next time
UPDATE /*schema*/processing_queue AS q
SET scheduled_at = u.scheduled_at, swept = q.running OR q.swept, running = false
FROM unnest($1::int[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::timestamptz[])
    AS u (shard_id, guid, attempt_id, seen_at, scheduled_at)
WHERE q.shard_id = u.shard_id AND q.guid = u.guid AND q.scheduled_at = u.seen_at
  AND CASE WHEN q.running THEN q.attempt_id = u.attempt_id ELSE u.attempt_id IS NULL END
  /*one-shard: AND q.shard_id = $6*/
RETURNING q.guid;

-- name: end_actions many-shards
-- End actions and keep them among the finished ones for their retention (0: not at all).
-- $1 shards, $2 guids, $3 states, $4 reasons, $5 occurrence numbers, $6 occurrence_at, $7 succeeded
-- (to be added, like the next two), $8 failed, $9 interrupted, $10 consecutive failures,
-- $11 consecutive interruptions, $12 occurrence failures, $13 attempt ids, $14 began_at,
-- $15 last attempts, $16 the present
WITH gone AS (
    DELETE FROM /*schema*/scheduled_action AS a
    USING unnest(
        $1::int[], $2::uuid[], $3::text[], $4::text[], $5::bigint[], $6::timestamptz[], $7::int[],
        $8::int[], $9::int[], $10::int[], $11::int[], $12::int[], $13::uuid[], $14::timestamptz[],
        $15::text[]
    ) AS u (
        shard_id, guid, state, reason, occurrence_no, occurrence_at, succeeded, failed,
        interrupted, consecutive_failures, consecutive_interruptions, occurrence_failures,
        attempt_id, began_at, last_attempt
    )
    WHERE a.shard_id = u.shard_id AND a.guid = u.guid
    RETURNING
        a.shard_id, a.id, a.guid, a.spec, u.state, a.queue, a.priority, a.keyed, a.created_at,
        a.updated_at, u.occurrence_no, u.occurrence_at,
        a.attempts + u.succeeded + u.failed + u.interrupted AS attempts,
        a.succeeded + u.succeeded AS succeeded, a.failed + u.failed AS failed,
        a.interrupted + u.interrupted AS interrupted, u.consecutive_failures,
        u.consecutive_interruptions, u.occurrence_failures, u.attempt_id, u.began_at,
        coalesce(u.last_attempt, a.last_attempt) AS last_attempt, u.reason, a.retention_us
), kept AS (
    INSERT INTO /*schema*/finished_action (
        shard_id, id, guid, spec, state, queue, priority, keyed, created_at, updated_at,
        occurrence_no, occurrence_at, attempts, succeeded, failed, interrupted,
        consecutive_failures, consecutive_interruptions, occurrence_failures, attempt_id, began_at,
        last_attempt, reason, finished_at, purge_at
    )
    SELECT
        g.shard_id, g.id, g.guid, g.spec, g.state, g.queue, g.priority, g.keyed, g.created_at,
        g.updated_at, g.occurrence_no, g.occurrence_at, g.attempts, g.succeeded, g.failed,
        g.interrupted, g.consecutive_failures, g.consecutive_interruptions, g.occurrence_failures,
        g.attempt_id, g.began_at, g.last_attempt, g.reason, $16::timestamptz,
        $16::timestamptz + g.retention_us * interval '1 microsecond'
    FROM gone AS g
    WHERE g.retention_us > 0
)
SELECT g.guid FROM gone AS g;

-- name: end_lock shard-local
-- The same in three statements for one shard; first: which generations are still there.
-- $1 shards, $2 guids
SELECT a.guid
FROM /*schema*/scheduled_action AS a
JOIN unnest($1::int[], $2::uuid[]) AS u (shard_id, guid)
    ON a.shard_id = u.shard_id AND a.guid = u.guid
WHERE true /*one-shard: AND a.shard_id = $3*/
FOR UPDATE OF a;

-- name: end_archive shard-local
-- Second: the finished rows.
-- Parameters as in end_actions.
INSERT INTO /*schema*/finished_action (
    shard_id, id, guid, spec, state, queue, priority, keyed, created_at, updated_at,
    occurrence_no, occurrence_at, attempts, succeeded, failed, interrupted,
    consecutive_failures, consecutive_interruptions, occurrence_failures, attempt_id, began_at,
    last_attempt, reason, finished_at, purge_at
)
SELECT
    a.shard_id, a.id, a.guid, a.spec, u.state, a.queue, a.priority, a.keyed, a.created_at,
    a.updated_at, u.occurrence_no, u.occurrence_at,
    a.attempts + u.succeeded + u.failed + u.interrupted,
    a.succeeded + u.succeeded, a.failed + u.failed, a.interrupted + u.interrupted,
    u.consecutive_failures, u.consecutive_interruptions, u.occurrence_failures, u.attempt_id,
    u.began_at, coalesce(u.last_attempt, a.last_attempt), u.reason, $16::timestamptz,
    $16::timestamptz + a.retention_us * interval '1 microsecond'
FROM /*schema*/scheduled_action AS a
JOIN unnest(
    $1::int[], $2::uuid[], $3::text[], $4::text[], $5::bigint[], $6::timestamptz[], $7::int[],
    $8::int[], $9::int[], $10::int[], $11::int[], $12::int[], $13::uuid[], $14::timestamptz[],
    $15::text[]
) AS u (
    shard_id, guid, state, reason, occurrence_no, occurrence_at, succeeded, failed,
    interrupted, consecutive_failures, consecutive_interruptions, occurrence_failures,
    attempt_id, began_at, last_attempt
) ON a.shard_id = u.shard_id AND a.guid = u.guid
WHERE a.retention_us > 0 /*one-shard: AND a.shard_id = $17*/;

-- name: end_remove shard-local
-- Third: the action rows go.
-- $1 shards, $2 guids
DELETE FROM /*schema*/scheduled_action AS a
USING unnest($1::int[], $2::uuid[]) AS u (shard_id, guid)
WHERE a.shard_id = u.shard_id AND a.guid = u.guid /*one-shard: AND a.shard_id = $3*/;

-- name: continue_actions shard-local
-- Count, and go on to the next attempt or occurrence. Counters are added up here, so that no
-- read-modify-write can lose one.
-- $1 shards, $2 guids, $3 occurrence numbers, $4 occurrence_at, $5 expires_at, $6 succeeded,
-- $7 failed, $8 interrupted, $9 consecutive failures, $10 consecutive interruptions,
-- $11 occurrence failures, $12 last attempts
UPDATE /*schema*/scheduled_action AS a
SET occurrence_no = u.occurrence_no, occurrence_at = u.occurrence_at, expires_at = u.expires_at,
    attempts = a.attempts + u.succeeded + u.failed + u.interrupted,
    succeeded = a.succeeded + u.succeeded, failed = a.failed + u.failed,
    interrupted = a.interrupted + u.interrupted, consecutive_failures = u.consecutive_failures,
    consecutive_interruptions = u.consecutive_interruptions,
    occurrence_failures = u.occurrence_failures,
    last_attempt = coalesce(u.last_attempt, a.last_attempt)
FROM unnest(
    $1::int[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::int[],
    $7::int[], $8::int[], $9::int[], $10::int[], $11::int[], $12::text[]
) AS u (
    shard_id, guid, occurrence_no, occurrence_at, expires_at, succeeded, failed, interrupted,
    consecutive_failures, consecutive_interruptions, occurrence_failures, last_attempt
)
WHERE a.shard_id = u.shard_id AND a.guid = u.guid /*one-shard: AND a.shard_id = $13*/
RETURNING a.guid;

-- name: log_attempts shard-local
-- Write attempts down. A row of an attempt that was swept or superseded gets its true end.
-- $1 shards, $2 ids, $3 guids, $4 attempt ids, $5 attempt numbers, $6 occurrence numbers,
-- $7 began_at, $8 outcomes, $9 errors, $10 answers, $11 owners, $12 ended_at
INSERT INTO /*schema*/attempt_log (
    shard_id, id, guid, attempt_id, attempt_no, occurrence_no, began_at, ended_at, outcome, error,
    answer, owner
)
SELECT
    l.shard_id, u.id, u.guid, u.attempt_id, u.attempt_no, u.occurrence_no, u.began_at,
    $12::timestamptz, u.outcome, u.error, u.answer, u.owner
FROM unnest(
    $1::int[], $2::text[], $3::uuid[], $4::uuid[], $5::int[], $6::bigint[], $7::timestamptz[],
    $8::text[], $9::text[], $10::text[], $11::text[]
) AS u (
    shard_id, id, guid, attempt_id, attempt_no, occurrence_no, began_at, outcome, error, answer,
    owner
)
JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id
WHERE true /*one-shard: AND l.shard_id = $13*/
ON CONFLICT (shard_id, attempt_id, began_at) DO UPDATE
SET outcome = excluded.outcome, ended_at = excluded.ended_at, error = excluded.error,
    answer = excluded.answer, owner = excluded.owner
WHERE attempt_log.outcome IN ('interrupted', 'superseded');

-- name: refused shard-local
-- Results that no fence let through: which of them had been recorded before? That the attempt was
-- swept or superseded is no result of its own, unless this one says the very same.
-- $1 shards, $2 guids, $3 attempt ids, $4 began_at, $5 outcomes
SELECT u.attempt_id
FROM unnest($1::int[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::text[])
    AS u (shard_id, guid, attempt_id, began_at, outcome)
WHERE EXISTS (
    SELECT FROM /*schema*/attempt_log AS t
    WHERE t.shard_id = u.shard_id AND t.attempt_id = u.attempt_id AND t.began_at = u.began_at
      AND (t.outcome NOT IN ('interrupted', 'superseded') OR t.outcome = u.outcome)
      /*one-shard: AND t.shard_id = $6*/
) OR EXISTS (
    SELECT FROM /*schema*/finished_action AS f
    WHERE f.shard_id = u.shard_id AND f.guid = u.guid AND f.attempt_id = u.attempt_id
      /*one-shard: AND f.shard_id = $6*/
) OR EXISTS (
    SELECT FROM /*schema*/processing_queue AS q
    WHERE q.shard_id = u.shard_id AND q.guid = u.guid AND q.attempt_id = u.attempt_id
      AND NOT q.running AND NOT q.swept /*one-shard: AND q.shard_id = $6*/
);

-- name: now global
SELECT statement_timestamp();
