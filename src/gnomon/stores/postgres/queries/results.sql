-- Recording what became of attempts. Everywhere: the action row first, then the processing row, as
-- those do who change actions; and neither is waited for, because a user may hold an action for as
-- long as he likes. Who cannot be locked is left out, and tried again.
-- See actions.sql about `one-shard:`, and work.sql about joins and arrays sorted by guid.

-- name: finish_plain many-shards
-- The common case in one statement: attempts that succeeded and so end their actions, with nothing
-- to tell but an answer. An attempt whose action is gone, or held, does not come back. Its row is
-- where it was begun: in the incoming queue, under the time at which its generation was made, or in
-- the processing queue. All is locked before it is removed, so a ctid is good until then. One row: how
-- many were recorded, which of them, unless that is all, and which were counted as interrupted.
-- $1 guids, $2 attempt ids, $3 last attempts, where they have an answer, $4 whether also those that
-- were counted as interrupted: what became of them is logged in the same transaction
WITH fenced AS MATERIALIZED (
    SELECT
        u.attempt_id, u.last_attempt, a.row_id, i.row_id AS incoming_row, q.row_id AS processing_row,
        coalesce(i.began_at, q.began_at) AS began_at, coalesce(q.swept, 0) AS swept
    FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS u (guid, attempt_id, last_attempt)
    CROSS JOIN LATERAL (
        SELECT s.ctid AS row_id, s.shard_id, s.updated_at
        FROM /*schema*/scheduled_action AS s
        WHERE s.guid = u.guid
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS a
    LEFT JOIN LATERAL (
        SELECT n.ctid AS row_id, n.began_at
        FROM /*schema*/incoming_queue AS n
        WHERE n.shard_id = a.shard_id AND n.created_at = a.updated_at AND n.guid = u.guid
          AND n.attempt_id = u.attempt_id
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS i ON true
    LEFT JOIN LATERAL (
        SELECT n.ctid AS row_id, n.began_at, n.swept::int AS swept
        FROM /*schema*/processing_queue AS n
        WHERE n.guid = u.guid AND n.attempt_id = u.attempt_id AND (n.running OR n.swept)
          AND (NOT n.swept OR $4::boolean) AND i.row_id IS NULL
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS q ON true
    WHERE i.row_id IS NOT NULL OR q.row_id IS NOT NULL
), left_incoming AS (
    DELETE FROM /*schema*/incoming_queue AS i
    USING fenced AS f
    WHERE i.ctid = f.incoming_row
), left_processing AS (
    DELETE FROM /*schema*/processing_queue AS q
    USING fenced AS f
    WHERE q.ctid = f.processing_row
), ended AS (
    DELETE FROM /*schema*/scheduled_action AS a
    USING fenced AS f
    WHERE a.ctid = f.row_id
    RETURNING
        a.shard_id, a.id, a.guid, a.spec, a.queue, a.priority, a.keyed, a.created_at, a.updated_at,
        a.occurrence_no, a.occurrence_at, a.attempts, a.succeeded, a.failed, a.interrupted,
        a.retention_us, f.attempt_id, f.began_at, f.swept, f.last_attempt
), kept AS (
    INSERT INTO /*schema*/finished_action (
        shard_id, id, guid, spec, state, queue, priority, keyed, created_at, updated_at,
        occurrence_no, occurrence_at, attempts, succeeded, failed, interrupted,
        consecutive_failures, consecutive_interruptions, occurrence_failures, attempt_id, began_at,
        last_attempt, finished_at, purge_at
    )
    SELECT
        e.shard_id, e.id, e.guid, e.spec, 'done', e.queue, e.priority, e.keyed, e.created_at,
        e.updated_at, e.occurrence_no, e.occurrence_at, e.attempts + 1 - e.swept, e.succeeded + 1,
        e.failed, e.interrupted - e.swept, 0, 0, 0, e.attempt_id, e.began_at, e.last_attempt,
        statement_timestamp(), statement_timestamp() + e.retention_us * interval '1 microsecond'
    FROM ended AS e
    WHERE e.retention_us > 0
)
SELECT
    count(*) AS recorded_count,
    CASE WHEN count(*) < cardinality($2::uuid[]) THEN array_agg(f.attempt_id) END AS recorded,
    array_agg(f.attempt_id) FILTER (WHERE f.swept > 0) AS swept
FROM fenced AS f;

-- name: lock_generation shard-local
-- Lock generations and their processing rows until we are done; those that are there and free.
-- $1 guids
SELECT q.guid
FROM /*schema*/processing_queue AS q
CROSS JOIN LATERAL (
    SELECT 1 FROM /*schema*/scheduled_action AS a
    WHERE a.guid = q.guid /*one-shard: AND a.shard_id = $2*/
    LIMIT 1
    FOR UPDATE SKIP LOCKED
) AS a
WHERE q.guid = ANY ($1::uuid[]) /*one-shard: AND q.shard_id = $2*/
FOR UPDATE OF q SKIP LOCKED;

-- name: finish_take shard-local
-- The fence of results that end their actions: who removes the processing row may write the rest.
-- $1 guids (sorted), $2 attempt ids
DELETE FROM /*schema*/processing_queue AS q
WHERE q.guid = ANY ($1::uuid[])
  AND q.attempt_id = ($2::uuid[])[width_bucket(q.guid, $1::uuid[])]
  AND (q.running OR q.swept) /*one-shard: AND q.shard_id = $3*/
RETURNING q.attempt_id, q.swept;

-- name: finish_end shard-local
-- lock_generation and finish_take in one, for results that end their actions: what nobody else holds
-- is locked, and its processing row goes.
-- $1 guids (sorted), $2 attempt ids
WITH free AS MATERIALIZED (
    SELECT q.ctid AS row_id, q.shard_id, statement_timestamp() AS now
    FROM /*schema*/processing_queue AS q
    CROSS JOIN LATERAL (
        SELECT 1 FROM /*schema*/scheduled_action AS a
        WHERE a.guid = q.guid /*one-shard: AND a.shard_id = $3*/
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS a
    WHERE q.guid = ANY ($1::uuid[])
      AND q.attempt_id = ($2::uuid[])[width_bucket(q.guid, $1::uuid[])]
      AND (q.running OR q.swept) /*one-shard: AND q.shard_id = $3*/
    FOR UPDATE OF q SKIP LOCKED
)
DELETE FROM /*schema*/processing_queue AS q
USING free AS f
WHERE q.ctid = f.row_id /*one-shard: AND q.shard_id = $3*/
RETURNING q.attempt_id, q.swept, f.now;

-- name: finish_end_plain shard-local
-- The same for plain successes, which may have been begun in place: whichever row has the attempt goes.
-- $1 guids (sorted), $2 attempt ids
WITH fenced AS MATERIALIZED (
    SELECT u.attempt_id, a.shard_id, i.row_id AS incoming_row, q.row_id AS processing_row,
        coalesce(q.swept, false) AS swept, statement_timestamp() AS now
    FROM unnest($1::uuid[], $2::uuid[]) AS u (guid, attempt_id)
    CROSS JOIN LATERAL (
        SELECT s.shard_id, s.updated_at
        FROM /*schema*/scheduled_action AS s
        WHERE s.guid = u.guid /*one-shard: AND s.shard_id = $3*/
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS a
    LEFT JOIN LATERAL (
        SELECT n.ctid AS row_id
        FROM /*schema*/incoming_queue AS n
        WHERE n.shard_id = a.shard_id AND n.created_at = a.updated_at AND n.guid = u.guid
          AND n.attempt_id = u.attempt_id /*one-shard: AND n.shard_id = $3*/
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS i ON true
    LEFT JOIN LATERAL (
        SELECT n.ctid AS row_id, n.swept
        FROM /*schema*/processing_queue AS n
        WHERE n.guid = u.guid AND n.attempt_id = u.attempt_id AND (n.running OR n.swept)
          AND i.row_id IS NULL /*one-shard: AND n.shard_id = $3*/
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS q ON true
    WHERE i.row_id IS NOT NULL OR q.row_id IS NOT NULL
), left_incoming AS (
    DELETE FROM /*schema*/incoming_queue AS i
    USING fenced AS f
    WHERE i.ctid = f.incoming_row /*one-shard: AND i.shard_id = $3*/
    RETURNING i.guid
), left_processing AS (
    DELETE FROM /*schema*/processing_queue AS q
    USING fenced AS f
    WHERE q.ctid = f.processing_row /*one-shard: AND q.shard_id = $3*/
    RETURNING q.guid
)
SELECT f.attempt_id, f.swept, f.now FROM fenced AS f;

-- name: finish_keep shard-local
-- The fence of results after which the action goes on; the attempt id stays, to know a repeat by.
-- `swept` stays as well for a moment, for RETURNING knows the new row only: see finish_clear_swept.
-- $1 guids (sorted), $2 attempt ids, $3 scheduled_at
UPDATE /*schema*/processing_queue AS q
SET scheduled_at = coalesce(($3::timestamptz[])[width_bucket(q.guid, $1::uuid[])], 'infinity'),
    running = false
WHERE q.guid = ANY ($1::uuid[])
  AND q.attempt_id = ($2::uuid[])[width_bucket(q.guid, $1::uuid[])]
  AND (q.running OR q.swept) /*one-shard: AND q.shard_id = $4*/
RETURNING q.attempt_id, q.swept, q.guid;

-- name: finish_clear_swept shard-local
-- Results that came after all: their attempts count as ended by themselves.
-- $1 guids
UPDATE /*schema*/processing_queue AS q
SET swept = false
WHERE q.guid = ANY ($1::uuid[]) /*one-shard: AND q.shard_id = $2*/;

-- name: finish_hand_back shard-local
-- The fence of attempts that were not made, for nobody served them here: the begin is taken back. The
-- attempt id stays, to know a repeat by. The CASE keeps the planner from the index of running rows.
-- $1 guids (sorted), $2 attempt ids, $3 scheduled_at, $4 needs
UPDATE /*schema*/processing_queue AS q
SET scheduled_at = coalesce(($3::timestamptz[])[width_bucket(q.guid, $1::uuid[])], 'infinity'),
    need = coalesce(($4::text[])[width_bucket(q.guid, $1::uuid[])], ''), running = false,
    attempts = q.attempts - 1
WHERE q.guid = ANY ($1::uuid[])
  AND CASE WHEN q.running THEN
      q.attempt_id = ($2::uuid[])[width_bucket(q.guid, $1::uuid[])]
  END
  /*one-shard: AND q.shard_id = $5*/
RETURNING q.attempt_id;

-- name: settle_take shard-local
-- The fence of a lapsed row that ends its action: everything that was read of it.
-- $1 guids (sorted), $2 attempt ids (zero: not running), $3 scheduled_at as read
DELETE FROM /*schema*/processing_queue AS q
WHERE q.guid = ANY ($1::uuid[])
  AND q.scheduled_at = ($3::timestamptz[])[width_bucket(q.guid, $1::uuid[])]
  AND CASE WHEN q.running THEN q.attempt_id ELSE '00000000-0000-0000-0000-000000000000' END
      = ($2::uuid[])[width_bucket(q.guid, $1::uuid[])]
  /*one-shard: AND q.shard_id = $4*/
RETURNING q.guid;

-- name: settle_keep shard-local
-- The fence of a lapsed row whose action goes on. An attempt that ran is now swept.
-- $1 guids (sorted), $2 attempt ids (zero: not running), $3 scheduled_at as read, $4 next time
UPDATE /*schema*/processing_queue AS q
SET scheduled_at = coalesce(($4::timestamptz[])[width_bucket(q.guid, $1::uuid[])], 'infinity'),
    swept = q.running OR q.swept, running = false
WHERE q.guid = ANY ($1::uuid[])
  AND q.scheduled_at = ($3::timestamptz[])[width_bucket(q.guid, $1::uuid[])]
  AND CASE WHEN q.running THEN q.attempt_id ELSE '00000000-0000-0000-0000-000000000000' END
      = ($2::uuid[])[width_bucket(q.guid, $1::uuid[])]
  /*one-shard: AND q.shard_id = $5*/
RETURNING q.guid;

-- name: end_archive shard-local
-- Ending actions takes two statements; first: the finished rows, kept for their retention (0: not at all).
-- $1 guids, $2 states, $3 reasons, $4 occurrence numbers, $5 occurrence_at, $6 succeeded (to be
-- added, like the next two), $7 failed, $8 interrupted, $9 consecutive failures,
-- $10 consecutive interruptions, $11 occurrence failures, $12 attempt ids, $13 began_at,
-- $14 last attempts, $15 the present
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
    u.began_at, coalesce(u.last_attempt, a.last_attempt), u.reason, $15::timestamptz,
    $15::timestamptz + a.retention_us * interval '1 microsecond'
FROM unnest(
    $1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::timestamptz[], $6::int[], $7::int[],
    $8::int[], $9::int[], $10::int[], $11::int[], $12::uuid[], $13::timestamptz[], $14::text[]
) AS u (
    guid, state, reason, occurrence_no, occurrence_at, succeeded, failed,
    interrupted, consecutive_failures, consecutive_interruptions, occurrence_failures,
    attempt_id, began_at, last_attempt
)
CROSS JOIN LATERAL (
    SELECT s.*
    FROM /*schema*/scheduled_action AS s
    WHERE s.guid = u.guid AND s.retention_us > 0 /*one-shard: AND s.shard_id = $16*/
    LIMIT 1
) AS a;

-- name: end_remove shard-local
-- Second: the action rows go.
-- $1 guids
DELETE FROM /*schema*/scheduled_action AS a
WHERE a.guid = ANY ($1::uuid[]) /*one-shard: AND a.shard_id = $2*/;

-- name: continue_action shard-local
-- Count, and go on to the next attempt or occurrence. Counters are added up here, so that no
-- read-modify-write can lose one. The rows are locked: a ctid is good until we are done.
-- $1 guids, $2 occurrence numbers, $3 occurrence_at, $4 expires_at, $5 succeeded, $6 failed,
-- $7 interrupted, $8 consecutive failures, $9 consecutive interruptions, $10 occurrence failures,
-- $11 last attempts
WITH found AS MATERIALIZED (
    SELECT r.row_id, u.*
    FROM unnest(
        $1::uuid[], $2::bigint[], $3::timestamptz[], $4::timestamptz[], $5::int[], $6::int[],
        $7::int[], $8::int[], $9::int[], $10::int[], $11::text[]
    ) AS u (
        guid, occurrence_no, occurrence_at, expires_at, succeeded, failed, interrupted,
        consecutive_failures, consecutive_interruptions, occurrence_failures, last_attempt
    )
    CROSS JOIN LATERAL (
        SELECT s.ctid AS row_id
        FROM /*schema*/scheduled_action AS s
        WHERE s.guid = u.guid /*one-shard: AND s.shard_id = $12*/
        LIMIT 1
    ) AS r
)
UPDATE /*schema*/scheduled_action AS a
SET occurrence_no = u.occurrence_no, occurrence_at = u.occurrence_at, expires_at = u.expires_at,
    attempts = a.attempts + u.succeeded + u.failed + u.interrupted,
    succeeded = a.succeeded + u.succeeded, failed = a.failed + u.failed,
    interrupted = a.interrupted + u.interrupted, consecutive_failures = u.consecutive_failures,
    consecutive_interruptions = u.consecutive_interruptions,
    occurrence_failures = u.occurrence_failures,
    last_attempt = coalesce(u.last_attempt, a.last_attempt)
FROM found AS u
WHERE a.ctid = u.row_id AND a.guid IS NOT DISTINCT FROM u.guid /*one-shard: AND a.shard_id = $12*/
RETURNING a.guid;

-- name: log_attempt shard-local
-- Write attempts down. A row of an attempt that was swept, superseded or asked to end gets its true
-- end; who was asked to end and did is not late.
-- $1 shards, $2 ids, $3 guids, $4 attempt ids, $5 attempt numbers, $6 occurrence numbers,
-- $7 began_at, $8 outcomes, $9 errors, $10 answers, $11 owners, $12 ended_at
INSERT INTO /*schema*/attempt_log (
    shard_id, id, guid, attempt_id, attempt_no, occurrence_no, began_at, ended_at, outcome, error,
    answer, owner
)
SELECT
    l.shard_id, u.id, u.guid, u.attempt_id, u.attempt_no, u.occurrence_no, u.began_at,
    u.ended_at, u.outcome, u.error, u.answer, u.owner
FROM unnest(
    $1::int[], $2::text[], $3::uuid[], $4::uuid[], $5::int[], $6::bigint[], $7::timestamptz[],
    $8::text[], $9::text[], $10::text[], $11::text[], $12::timestamptz[]
) AS u (
    shard_id, id, guid, attempt_id, attempt_no, occurrence_no, began_at, outcome, error, answer,
    owner, ended_at
)
JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id
WHERE true /*one-shard: AND l.shard_id = $13*/
ON CONFLICT (attempt_id, shard_id, began_at) DO UPDATE
SET outcome = CASE
        WHEN attempt_log.outcome = 'cancelling' AND excluded.outcome = 'late_cancelled'
        THEN 'cancelled' ELSE excluded.outcome
    END,
    ended_at = excluded.ended_at, error = excluded.error,
    answer = excluded.answer, owner = excluded.owner
WHERE attempt_log.outcome IN ('interrupted', 'superseded', 'cancelling');

-- name: finish_held shard-local
-- Of results that were not recorded, those that still can be: somebody holds their action. Who is in
-- his slot no longer cannot prolong its reservation, so that is done here; a row that is held itself
-- will be there the next time, also one that is still where it was begun: see move_begun.
-- $1 guids (sorted), $2 attempt ids, $3 reserved for
WITH mine AS MATERIALIZED (
    SELECT q.ctid AS row_id, q.attempt_id
    FROM /*schema*/processing_queue AS q
    WHERE q.guid = ANY ($1::uuid[])
      AND q.attempt_id = ($2::uuid[])[width_bucket(q.guid, $1::uuid[])]
      AND (q.running OR q.swept)
      AND EXISTS (
          SELECT 1 FROM /*schema*/scheduled_action AS a
          WHERE a.guid = q.guid /*one-shard: AND a.shard_id = $4*/
          OFFSET 0
      )
      /*one-shard: AND q.shard_id = $4*/
), free AS (
    SELECT f.row_id
    FROM mine AS m
    CROSS JOIN LATERAL (
        SELECT q.ctid AS row_id
        FROM /*schema*/processing_queue AS q
        WHERE q.ctid = m.row_id AND q.running AND q.attempt_id = m.attempt_id
          /*one-shard: AND q.shard_id = $4*/
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS f
), prolonged AS (
    UPDATE /*schema*/processing_queue AS q
    SET scheduled_at = greatest(q.scheduled_at, statement_timestamp() + $3::interval)
    FROM free AS f
    WHERE q.ctid = f.row_id /*one-shard: AND q.shard_id = $4*/
    RETURNING q.guid
)
SELECT m.attempt_id FROM mine AS m
UNION ALL
SELECT i.attempt_id
FROM unnest($1::uuid[], $2::uuid[]) AS u (guid, attempt_id)
CROSS JOIN LATERAL (
    SELECT s.shard_id, s.updated_at
    FROM /*schema*/scheduled_action AS s
    WHERE s.guid = u.guid /*one-shard: AND s.shard_id = $4*/
    LIMIT 1
) AS a
CROSS JOIN LATERAL (
    SELECT n.attempt_id
    FROM /*schema*/incoming_queue AS n
    WHERE n.shard_id = a.shard_id AND n.created_at = a.updated_at AND n.guid = u.guid
      AND n.attempt_id = u.attempt_id /*one-shard: AND n.shard_id = $4*/
    LIMIT 1
) AS i;

-- name: finish_recorded shard-local
-- Results that no fence let through: which of them had been recorded before? That the attempt was
-- swept, superseded or asked to end is no result of its own, unless this one says the very same.
-- $1 guids, $2 attempt ids, $3 began_at, $4 outcomes, $5 shards, $6 ids
SELECT u.attempt_id
FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::text[], $5::int[], $6::text[])
    AS u (guid, attempt_id, began_at, outcome, shard_id, id)
WHERE EXISTS (
    SELECT 1 FROM /*schema*/attempt_log AS t
    WHERE t.attempt_id = u.attempt_id AND t.began_at = u.began_at
      AND (t.outcome NOT IN ('interrupted', 'superseded', 'cancelling') OR t.outcome = u.outcome)
      /*one-shard: AND t.shard_id = $7*/
) OR EXISTS (
    SELECT 1 FROM /*schema*/finished_action AS f
    WHERE f.shard_id = u.shard_id AND f.id = u.id AND f.guid = u.guid
      AND f.attempt_id = u.attempt_id
      /*one-shard: AND f.shard_id = $7*/
) OR EXISTS (
    SELECT 1 FROM /*schema*/processing_queue AS q
    WHERE q.guid = u.guid AND q.attempt_id = u.attempt_id
      AND NOT q.running AND NOT q.swept /*one-shard: AND q.shard_id = $7*/
);
