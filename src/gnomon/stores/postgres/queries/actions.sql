-- What users ask for. A statement marked shard-local serves both plain PostgreSQL, where its arrays
-- may name many shards, and Citus, where the engine calls it for one shard at a time: there the text
-- behind `one-shard:` is switched on, and that shard's number is the last parameter.

-- name: create many-shards
-- Store actions without idempotency keys, and append them to the incoming queue, in one statement.
-- $1 shards, $2 ids, $3 guids, $4 specs, $5 queues, $6 priorities, $7 timeouts in µs,
-- $8 retentions in µs, $9 scheduled_at, $10 occurrence_at where it is another time, $11 expires_at;
-- $4 to $9 have one place if it is the same for all, $10 and $11 none if it is NULL for all. $12 creator, $13 actor, $14 verb, $15 whether it is one call: the audit has one entry for it, else
-- one for each action, $16 face. Gives one row; `guids`: which were stored, NULL if all of them were.
WITH stored AS (
    INSERT INTO /*schema*/scheduled_action (
        shard_id, id, guid, spec, state, queue, priority, timeout_us, retention_us, keyed,
        created_at, updated_at, scheduled_at, occurrence_no, occurrence_at, expires_at,
        attempts, succeeded, failed, interrupted,
        consecutive_failures, consecutive_interruptions, occurrence_failures, creator
    )
    SELECT
        u.shard_id, u.id, u.guid, coalesce(u.spec, ($4::text[])[1]), 'active',
        coalesce(u.queue, ($5::text[])[1]), coalesce(u.priority, ($6::smallint[])[1]),
        coalesce(u.timeout_us, ($7::bigint[])[1]), coalesce(u.retention_us, ($8::bigint[])[1]),
        false, statement_timestamp(), statement_timestamp(),
        coalesce(u.scheduled_at, ($9::timestamptz[])[1]), 1,
        coalesce(u.occurrence_at, u.scheduled_at, ($9::timestamptz[])[1]), u.expires_at,
        0, 0, 0, 0, 0, 0, 0, $12::text
    FROM unnest(
        $1::int[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::smallint[], $7::bigint[],
        $8::bigint[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[]
    ) AS u (
        shard_id, id, guid, spec, queue, priority, timeout_us,
        retention_us, scheduled_at, occurrence_at, expires_at
    )
    ON CONFLICT (shard_id, id) DO NOTHING
    RETURNING shard_id, id, guid, created_at, queue, priority, scheduled_at
), announced AS (
    INSERT INTO /*schema*/incoming_queue
        (shard_id, created_at, guid, queue, priority, scheduled_at)
    SELECT s.shard_id, s.created_at, s.guid, s.queue, s.priority, s.scheduled_at
    FROM stored AS s
), audited AS (
    INSERT INTO /*schema*/audit (at, guid, shard_id, count, verb, actor, id, face)
    SELECT
        -- Pages of the audit are cut between two moments: each call has its own, by microseconds.
        s.created_at + (row_number() OVER () - 1) * interval '1 microsecond', s.guid, s.shard_id,
        CASE WHEN $15::boolean THEN (SELECT count(*) FROM stored) ELSE 1 END, $14::text, $13::text,
        s.id, $16::text
    FROM stored AS s
    LIMIT CASE WHEN $15::boolean THEN 1 END
)
SELECT
    statement_timestamp() AS created_at,
    CASE WHEN count(*) < cardinality($3::uuid[]) THEN coalesce(array_agg(s.guid), '{}') END AS guids
FROM stored AS s;

-- name: create_rows shard-local
-- The action rows alone, keyed or not; who was there first stays.
-- $1 shards, $2 ids, $3 guids, $4 specs, $5 queues, $6 priorities, $7 timeouts in µs,
-- $8 retentions in µs, $9 scheduled_at, $10 occurrence_at, $11 expires_at, $12 keyed,
-- $13 creator
INSERT INTO /*schema*/scheduled_action (
    shard_id, id, guid, spec, state, queue, priority, timeout_us, retention_us, keyed,
    created_at, updated_at, scheduled_at, occurrence_no, occurrence_at, expires_at,
    attempts, succeeded, failed, interrupted,
    consecutive_failures, consecutive_interruptions, occurrence_failures, creator
)
SELECT
    l.shard_id, u.id, u.guid, u.spec, 'active', u.queue, u.priority, u.timeout_us,
    u.retention_us, u.keyed, statement_timestamp(), statement_timestamp(), u.scheduled_at, 1,
    u.occurrence_at, u.expires_at, 0, 0, 0, 0, 0, 0, 0, $13::text
FROM unnest(
    $1::int[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::smallint[], $7::bigint[],
    $8::bigint[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $12::boolean[]
) AS u (
    shard_id, id, guid, spec, queue, priority, timeout_us,
    retention_us, scheduled_at, occurrence_at, expires_at, keyed
)
JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id
WHERE true /*one-shard: AND l.shard_id = $14*/
ON CONFLICT (shard_id, id) DO NOTHING
RETURNING guid, created_at;

-- name: create_row shard-local
-- The same for one action. Citus sends a row of values to its node without looking for a plan.
-- $1 shard, $2 id, $3 guid, $4 spec, $5 queue, $6 priority, $7 timeout in µs, $8 retention in µs,
-- $9 scheduled_at, $10 occurrence_at, $11 expires_at, $12 keyed, $13 creator
INSERT INTO /*schema*/scheduled_action (
    shard_id, id, guid, spec, state, queue, priority, timeout_us, retention_us, keyed,
    created_at, updated_at, scheduled_at, occurrence_no, occurrence_at, expires_at,
    attempts, succeeded, failed, interrupted,
    consecutive_failures, consecutive_interruptions, occurrence_failures, creator
)
VALUES (
    $1::int, $2::text, $3::uuid, $4::text, 'active', $5::text, $6::smallint, $7::bigint, $8::bigint,
    $12::boolean, statement_timestamp(), statement_timestamp(), $9::timestamptz, 1,
    $10::timestamptz, $11::timestamptz, 0, 0, 0, 0, 0, 0, 0, $13::text
)
ON CONFLICT (shard_id, id) DO NOTHING
RETURNING guid, created_at;

-- name: append_incoming_row shard-local
-- append_incoming for one generation.
-- $1 shard, $2 guid, $3 queue, $4 priority, $5 scheduled_at, $6 created_at
INSERT INTO /*schema*/incoming_queue (shard_id, created_at, guid, queue, priority, scheduled_at)
VALUES ($1::int, $6::timestamptz, $2::uuid, $3::text, $4::smallint, $5::timestamptz);

-- name: append_incoming shard-local
-- Append generations to the incoming queue.
-- $1 shards, $2 guids, $3 queues, $4 priorities, $5 scheduled_at, $6 created_at
INSERT INTO /*schema*/incoming_queue (shard_id, created_at, guid, queue, priority, scheduled_at)
SELECT l.shard_id, $6::timestamptz, u.guid, u.queue, u.priority, u.scheduled_at
FROM unnest($1::int[], $2::uuid[], $3::text[], $4::smallint[], $5::timestamptz[])
    AS u (shard_id, guid, queue, priority, scheduled_at)
JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id
WHERE true /*one-shard: AND l.shard_id = $7*/;

-- name: repeat_live shard-local
-- Which of these guids are alive. A write of its own, so that an acknowledged repeat is as durable
-- as a first time, even if the commit of the first was never confirmed by a standby.
-- $1 guids
UPDATE /*schema*/scheduled_action AS a
SET updated_at = a.updated_at
WHERE a.guid = ANY ($1::uuid[]) /*one-shard: AND a.shard_id = $2*/
RETURNING a.guid;

-- name: repeat_finished shard-local
-- Which of these guids are finished (or replaced); a write of its own, see repeat_live.
-- $1 guids
UPDATE /*schema*/finished_action AS f
SET updated_at = f.updated_at
WHERE f.guid = ANY ($1::uuid[]) AND f.keyed /*one-shard: AND f.shard_id = $2*/
RETURNING f.guid;

-- name: create_withdraw shard-local
-- Take back rows of this very transaction: their guid had finished before.
-- $1 guids
DELETE FROM /*schema*/scheduled_action AS a
WHERE a.guid = ANY ($1::uuid[]) /*one-shard: AND a.shard_id = $2*/;

-- name: change_lock shard-local
-- Order this change against begin, finish and other changes. What the row holds is read after it,
-- by a statement of its own: only then is an attempt that just began visible.
-- $1 shard, $2 id
SELECT a.guid
FROM /*schema*/scheduled_action AS a
WHERE a.shard_id = $1::int AND a.id = $2::text
FOR UPDATE;

-- name: change_drop_row shard-local
-- A generation ends, and with it its row in the processing queue: left there until its time it would
-- be in the way of others. An attempt that runs keeps its row until it ends. The action is locked,
-- so no attempt can begin; who holds the row all the same is not waited for: delete_stale finds it.
-- $1 guid
WITH idle AS (
    SELECT q.ctid AS row_id
    FROM /*schema*/processing_queue AS q
    WHERE q.guid = $1::uuid AND NOT q.running /*one-shard: AND q.shard_id = $2*/
    FOR UPDATE SKIP LOCKED
)
DELETE FROM /*schema*/processing_queue AS q
USING idle AS i
WHERE q.ctid = i.row_id /*one-shard: AND q.shard_id = $2*/;

-- name: change_check_snapshot global
-- Fail, if an attempt may have begun that this transaction cannot see: see the function.
-- $1 shard, $2 guid
SELECT /*schema*/check_snapshot($1::int, $2::uuid);

-- name: get_live shard-local
-- Active and paused actions with their processing rows, or the incoming rows they run in. The columns are those of `Decoder.action_of`,
-- and what a change needs besides.
-- $1 shards, $2 ids
SELECT
    a.shard_id, a.id, a.guid, a.spec, a.state, a.created_at, a.updated_at,
    a.occurrence_no, a.occurrence_at, a.attempts, a.succeeded, a.failed, a.interrupted,
    a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures, a.last_attempt,
    a.scheduled_at, a.expires_at, q.scheduled_at AS due_at, q.attempts AS begun, q.running,
    q.attempt_id, q.began_at, q.deadline_at, q.owner, q.need, a.reason, a.paused_until, a.keyed,
    a.queue, a.priority, statement_timestamp() AS now
FROM unnest($1::int[], $2::text[]) AS u (shard_id, id)
CROSS JOIN LATERAL (
    SELECT s.*
    FROM /*schema*/scheduled_action AS s
    WHERE s.shard_id = u.shard_id AND s.id = u.id /*one-shard: AND s.shard_id = $3*/
    LIMIT 1
) AS a
LEFT JOIN LATERAL (
    SELECT
        p.scheduled_at, p.attempts, p.running, p.attempt_id, p.began_at, p.deadline_at, p.owner,
        p.need
    FROM /*schema*/processing_queue AS p
    WHERE p.guid = a.guid /*one-shard: AND p.shard_id = $3*/
    UNION ALL
    SELECT i.reserved_until, 1, true, i.attempt_id, i.began_at, i.deadline_at, i.owner, ''
    FROM /*schema*/incoming_queue AS i
    WHERE i.shard_id = a.shard_id AND i.created_at = a.updated_at AND i.guid = a.guid
      AND i.attempt_id IS NOT NULL /*one-shard: AND i.shard_id = $3*/
    LIMIT 1
) AS q ON true;

-- name: get_progress shard-local
-- What running attempts reported. An attempt that ended leaves nothing, or what its id tells apart.
-- $1 shards, $2 ids
SELECT p.id, p.attempt_id, p.at, p.fraction, p.said
FROM unnest($1::int[], $2::text[]) AS u (shard_id, id)
JOIN /*schema*/attempt_progress AS p ON p.shard_id = u.shard_id AND p.id = u.id
WHERE true /*one-shard: AND p.shard_id = $3*/;

-- name: get_finished shard-local
-- The latest visible finished generations of some ids; the columns of `Decoder.action_of`.
-- $1 shards, $2 ids
SELECT
    f.shard_id, f.id, f.guid, f.spec, f.state, f.created_at, f.updated_at,
    f.occurrence_no, f.occurrence_at, f.attempts, f.succeeded, f.failed, f.interrupted,
    f.consecutive_failures, f.consecutive_interruptions, f.occurrence_failures, f.last_attempt,
    f.attempt_id, f.began_at, f.reason, f.finished_at
FROM unnest($1::int[], $2::text[]) AS u (shard_id, id)
CROSS JOIN LATERAL (
    SELECT g.*
    FROM /*schema*/finished_action AS g
    WHERE g.shard_id = u.shard_id AND g.id = u.id AND g.purge_at > statement_timestamp()
      /*one-shard: AND g.shard_id = $3*/
    ORDER BY g.finished_at DESC
    LIMIT 1
) AS f;

-- name: repeat_generations shard-local
-- Finished generations by guid, for the sake of repeats: also when their retention is over.
-- $1 guids
SELECT
    f.shard_id, f.id, f.guid, f.spec, f.state, f.created_at, f.updated_at,
    f.occurrence_no, f.occurrence_at, f.attempts, f.succeeded, f.failed, f.interrupted,
    f.consecutive_failures, f.consecutive_interruptions, f.occurrence_failures, f.last_attempt,
    f.attempt_id, f.began_at, f.reason, f.finished_at
FROM /*schema*/finished_action AS f
WHERE f.guid = ANY ($1::uuid[]) AND f.keyed /*one-shard: AND f.shard_id = $2*/;

-- name: change_archive shard-local
-- Archive a generation that a user ended. Its attempt in flight counts as interrupted: it was made.
-- $1 shard, $2 id, $3 reason, $4 the present, $5 attempts in flight
INSERT INTO /*schema*/finished_action (
    shard_id, id, guid, spec, state, queue, priority, keyed, created_at, updated_at,
    occurrence_no, occurrence_at, attempts, succeeded, failed, interrupted,
    consecutive_failures, consecutive_interruptions, occurrence_failures,
    last_attempt, reason, finished_at, purge_at
)
SELECT
    a.shard_id, a.id, a.guid, a.spec, 'cancelled', a.queue, a.priority, a.keyed, a.created_at,
    $4::timestamptz, a.occurrence_no, a.occurrence_at, a.attempts + $5::int, a.succeeded, a.failed,
    a.interrupted + $5::int, a.consecutive_failures, a.consecutive_interruptions,
    a.occurrence_failures, a.last_attempt, $3::text, $4::timestamptz,
    $4::timestamptz + a.retention_us * interval '1 microsecond'
FROM /*schema*/scheduled_action AS a
WHERE a.shard_id = $1::int AND a.id = $2::text AND a.retention_us > 0;

-- name: delete shard-local
-- $1 shard, $2 id
DELETE FROM /*schema*/scheduled_action AS a WHERE a.shard_id = $1::int AND a.id = $2::text;

-- name: replace shard-local
-- A new generation: everything but the id and the time of creation begins anew.
-- $1 shard, $2 id, $3 guid, $4 spec, $5 queue, $6 priority, $7 timeout in µs, $8 retention in µs,
-- $9 scheduled_at, $10 occurrence_at, $11 expires_at, $12 keyed
UPDATE /*schema*/scheduled_action AS a
SET guid = $3::uuid, spec = $4::text, state = 'active', queue = $5::text, priority = $6::smallint,
    timeout_us = $7::bigint, retention_us = $8::bigint, scheduled_at = $9::timestamptz,
    occurrence_at = $10::timestamptz, expires_at = $11::timestamptz, keyed = $12::boolean,
    updated_at = statement_timestamp(), occurrence_no = 1, attempts = 0, succeeded = 0,
    failed = 0, interrupted = 0, consecutive_failures = 0, consecutive_interruptions = 0,
    occurrence_failures = 0, last_attempt = NULL, series = NULL, reason = NULL,
    paused_until = NULL
WHERE a.shard_id = $1::int AND a.id = $2::text
RETURNING a.updated_at;

-- name: change shard-local
-- A new generation that keeps spec, counters and delivery keys: pause, resume, run now.
-- $1 shard, $2 id, $3 guid, $4 state, $5 scheduled_at, $6 occurrence_at, $7 expires_at,
-- $8 occurrence_no, $9 occurrence_failures, $10 reason, $11 paused until
UPDATE /*schema*/scheduled_action AS a
SET guid = $3::uuid, state = $4::text, scheduled_at = $5::timestamptz,
    occurrence_at = $6::timestamptz, expires_at = $7::timestamptz, occurrence_no = $8::bigint,
    occurrence_failures = $9::int, keyed = false, updated_at = statement_timestamp(),
    series = coalesce(a.series, a.guid), reason = $10::text, paused_until = $11::timestamptz
WHERE a.shard_id = $1::int AND a.id = $2::text
RETURNING a.updated_at;

-- name: list_attempts shard-local
-- The log of an id, newest first.
-- $1 shard, $2 id, $3 limit
SELECT t.attempt_id, t.attempt_no, t.occurrence_no, t.began_at, t.ended_at, t.outcome, t.error,
       t.answer, t.owner
FROM /*schema*/attempt_log AS t
WHERE t.shard_id = $1::int AND t.id = $2::text
ORDER BY t.began_at DESC
LIMIT $3::int;

-- name: list_attempts_finished shard-local
-- Attempts that only their finished action tells of: one-shots that succeeded at once.
-- $1 shard, $2 id, $3 limit
SELECT f.attempt_id, f.attempts, f.occurrence_no, f.began_at, f.finished_at, f.last_attempt
FROM /*schema*/finished_action AS f
WHERE f.shard_id = $1::int AND f.id = $2::text AND f.purge_at > statement_timestamp()
  AND f.attempt_id IS NOT NULL
  AND NOT EXISTS (
      SELECT 1 FROM /*schema*/attempt_log AS t
      WHERE t.attempt_id = f.attempt_id AND t.began_at = f.began_at AND t.shard_id = $1::int
  )
ORDER BY f.finished_at DESC
LIMIT $3::int;

-- name: list_due shard-local
-- What the processing queue holds that is due before a moment, of so many lanes. The first row says
-- how many lanes there are, up to that.
-- $1 shards, $2 lanes looked at, $3 before, $4 limit
WITH RECURSIVE lane AS (
    SELECT h.shard_id, f.queue, f.priority, f.need
    FROM unnest($1::int[]) AS h (shard_id)
    CROSS JOIN LATERAL (
        SELECT q.queue, q.priority, q.need
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = h.shard_id /*one-shard: AND q.shard_id = $5*/
        ORDER BY q.queue, q.priority, q.need, q.scheduled_at
        LIMIT 1
    ) AS f
    UNION ALL
    SELECT p.shard_id, n.queue, n.priority, n.need
    FROM lane AS p
    CROSS JOIN LATERAL (
        SELECT q.queue, q.priority, q.need
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = p.shard_id AND (q.queue, q.priority, q.need) > (p.queue, p.priority, p.need)
          /*one-shard: AND q.shard_id = $5*/
        ORDER BY q.queue, q.priority, q.need, q.scheduled_at
        LIMIT 1
    ) AS n
),
few AS (
    SELECT l.shard_id, l.queue, l.priority, l.need FROM lane AS l LIMIT $2::int
)
SELECT a.id, (SELECT count(*)::int FROM few) AS lanes
FROM few AS l
CROSS JOIN LATERAL (
    SELECT q.guid
    FROM /*schema*/processing_queue AS q
    WHERE q.shard_id = l.shard_id AND q.queue = l.queue AND q.priority = l.priority
      AND q.need = l.need AND q.scheduled_at < $3::timestamptz
      /*one-shard: AND q.shard_id = $5*/
    ORDER BY q.scheduled_at
    LIMIT $4::int
) AS d
CROSS JOIN LATERAL (
    SELECT s.id
    FROM /*schema*/scheduled_action AS s
    WHERE s.guid = d.guid /*one-shard: AND s.shard_id = $5*/
    LIMIT 1
) AS a
LIMIT $4::int;

-- name: list_due_arrived shard-local
-- What stands in the incoming queue, due or not: the oldest rows of each shard, numbered. About where
-- it begins, see `figures_arrived`.
-- $1 shards, $2 rows of each shard, $3 how long an attempt may run in place
SELECT a.id, f.place::int AS place
FROM unnest($1::int[]) AS h (shard_id)
CROSS JOIN LATERAL (
    SELECT coalesce(l.incoming_mark - $3::interval, '-infinity') AS since
    FROM /*schema*/shard_lock AS l
    WHERE l.shard_id = h.shard_id /*one-shard: AND l.shard_id = $4*/
    LIMIT 1
) AS m
CROSS JOIN LATERAL (
    SELECT o.guid, row_number() OVER () AS place
    FROM (
        SELECT q.guid
        FROM /*schema*/incoming_queue AS q
        WHERE q.shard_id = h.shard_id AND q.created_at >= m.since /*one-shard: AND q.shard_id = $4*/
        ORDER BY q.created_at, q.guid
        LIMIT $2::int
    ) AS o
) AS f
CROSS JOIN LATERAL (
    SELECT s.id
    FROM /*schema*/scheduled_action AS s
    WHERE s.guid = f.guid /*one-shard: AND s.shard_id = $4*/
    LIMIT 1
) AS a;

-- name: count_live global
SELECT a.state, count(*) FROM /*schema*/scheduled_action AS a GROUP BY a.state;

-- name: count_unsuccessful global
-- Finished, but not done: exact, by a partial index.
SELECT f.state, count(*)
FROM /*schema*/finished_action AS f
WHERE f.state <> 'done' AND f.purge_at > statement_timestamp()
GROUP BY f.state;

-- name: count_done global
SELECT count(*)
FROM /*schema*/finished_action AS f
WHERE f.state = 'done' AND f.purge_at > statement_timestamp();

-- name: count_estimate global
-- How many finished rows the planner believes in.
-- $1 schema
SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint AS count
FROM pg_inherits AS i
JOIN pg_class AS c ON c.oid = i.inhrelid
JOIN pg_class AS parent ON parent.oid = i.inhparent
JOIN pg_namespace AS n ON n.oid = parent.relnamespace
WHERE n.nspname = $1::text AND parent.relname = 'finished_action';
