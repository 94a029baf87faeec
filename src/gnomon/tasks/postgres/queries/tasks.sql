-- What happens to one task. `mine` is always the row that the statement is about.

-- name: take
-- TAKE or due PLAN becomes WORK. A take of its own need not reach the disk before the task begins: the
-- task's own commit comes after it.
UPDATE /*task*/task AS mine
SET state = 'WORK', start = statement_timestamp(), stop = NULL, pid = $2::integer
WHERE mine.id = $1::bigint AND /*include ready*/true
    AND (NOT $5::boolean OR (SELECT set_config('synchronous_commit', 'off', true)) IS NOT NULL)
RETURNING /*include taken*/1,
    CASE WHEN $4::text IS NOT NULL THEN set_config('pg_task.id', mine.id::text, false) END AS set_id,
    CASE
        WHEN $4::text IS NOT NULL
            AND current_setting('pg_task.group', true) IS DISTINCT FROM mine."group"
        THEN set_config('pg_task.group', mine."group", false)
    END AS set_group,
    CASE
        WHEN $4::text IS NOT NULL AND current_setting('application_name') <> $4::text
        THEN set_config('application_name', $4::text, false)
    END AS set_name;

-- name: ready fragment
-- Whether a row is to be taken. One that waits beyond its `active` is left to `expire`.
(
    mine.state = 'TAKE'
    OR mine.state = 'PLAN'
        AND mine.plan <= statement_timestamp()
        AND (mine.max < 0 OR /*expiry mine*/mine.plan > statement_timestamp() AT TIME ZONE 'UTC')
)
AND /*owned $3*/true

-- name: taken fragment
mine.id, mine."group", mine.remote, mine.input, mine.plan, mine.start, mine.max, mine.count,
mine.live, mine.timeout, mine.save, mine.header, mine.string,
mine.delimiter, mine.quote, mine.escape, mine."null", mine.cron,
current_setting('log_error_verbosity') AS verbosity,
current_setting('log_min_error_statement') AS statement_level, /*look mine*/hashtextextended(mine.id, 0)

-- name: finish
-- Writes the end of a task that went well, if the row is still this attempt's, and takes the row that
-- follows ($5): one statement for both, for most of its cost does not depend on how many rows there
-- are.
/*include ended*/SELECT 1
    AND CASE WHEN mine.id = $1::bigint THEN /*include own*/true ELSE /*include ready*/true END
    AND /*include hasty*/true
RETURNING /*include taken*/1, /*include told*/1;

-- name: finish_ahead
-- The same where the next input goes along. Its row is taken if it is the very version that was looked
-- at ($10), which says all that is to be known of it, and if it has not expired since ($11).
/*include ended*/SELECT 1
    AND CASE
        WHEN mine.id = $1::bigint THEN /*include own*/true
        ELSE mine.xmin = $10::xid AND to_timestamp($11::double precision) > statement_timestamp()
            AND /*owned $3*/true
    END
    AND /*include hasty*/true
RETURNING mine.id, mine.plan, mine.start, /*include told*/1;

-- name: ended fragment
UPDATE /*task*/task AS mine
SET state = CASE WHEN mine.id = $1::bigint THEN 'DONE'::/*state*/state ELSE 'WORK' END,
    start = CASE WHEN mine.id = $1::bigint THEN mine.start ELSE statement_timestamp() END,
    stop = CASE WHEN mine.id = $1::bigint THEN statement_timestamp() END,
    pid = $2::integer,
    output = CASE WHEN mine.id = $1::bigint THEN $8::text ELSE mine.output END,
    error = CASE WHEN mine.id = $1::bigint THEN NULL ELSE mine.error END
WHERE mine.id IN ($1::bigint, $5::bigint)

-- name: told fragment
-- What follows the one that has ended; and the session learns of the task that it has now. One column,
-- which nobody reads: each costs both sides its description.
num_nonnulls(
    CASE
        WHEN mine.id <> $1::bigint THEN
            CASE WHEN $4::text IS NOT NULL THEN set_config('pg_task.id', mine.id::text, false) END
        WHEN btrim(mine.cron) <> '' THEN
            /*again*/gnomon_task_again(
                /*task_name*/'task'::regclass, mine.id, $9::timestamptz
            )::text
        WHEN mine.repeat > interval '0' THEN
            /*again*/gnomon_task_again(
                /*task_name*/'task'::regclass, mine.id,
                /*next*/gnomon_task_next(mine.plan, mine.repeat, mine.drift, mine.stop)
            )::text
    END,
    CASE
        WHEN mine.id <> $1::bigint AND $4::text IS NOT NULL
            AND current_setting('pg_task.group', true) IS DISTINCT FROM mine."group"
        THEN set_config('pg_task.group', mine."group", false)
    END,
    CASE
        WHEN mine.id <> $1::bigint AND $4::text IS NOT NULL
            AND current_setting('application_name') <> $4::text
        THEN set_config('application_name', $4::text, false)
    END
) AS told

-- name: own fragment
-- Whether the row is still this attempt's: WORK, this pid, this start. One that another attempt has,
-- or shall have, raises an error, so that what shares this transaction cannot be committed; one that
-- its user has stopped, changed or deleted does not, nor one that the input itself has changed. It
-- is asked again of the newest version where somebody changes the row at the same time.
CASE
    WHEN mine.pid = $2::integer AND mine.start = $6::timestamptz THEN mine.state = 'WORK'
    WHEN mine.xmin = pg_current_xact_id_if_assigned()::xid THEN false
    ELSE ('taken over, now with ' || coalesce(mine.pid, 0))::integer IS NULL
END

-- name: hasty fragment
-- Where the input has written nothing, the loss of this commit would only repeat it: no waiting for
-- the disk. True, and first asked before this statement itself writes: of whichever row comes first.
(
    NOT $7::boolean
    OR pg_current_xact_id_if_assigned() IS NOT NULL
    OR set_config('synchronous_commit', 'off', true) IS NOT NULL
)

-- name: finish_otherwise
-- The end of a task with an error, which may be tried again, or with a negative `max`.
WITH mine AS (
    UPDATE /*task*/task AS mine
    SET state = CASE
            WHEN $3::text IS NULL THEN 'DONE'::/*state*/state
            WHEN mine.retried < mine.retry THEN 'PLAN'
            ELSE 'FAIL'
        END,
        plan = CASE
            WHEN $3::text IS NOT NULL AND mine.retried < mine.retry THEN
                statement_timestamp()
                + least(2 ^ least(mine.retried, 12), 3600) * interval '1 second'
            ELSE mine.plan
        END,
        start = CASE
            WHEN $3::text IS NOT NULL AND mine.retried < mine.retry THEN NULL ELSE mine.start
        END,
        pid = CASE
            WHEN $3::text IS NOT NULL AND mine.retried < mine.retry THEN NULL ELSE mine.pid
        END,
        retried = CASE
            WHEN $3::text IS NOT NULL AND mine.retried < mine.retry THEN mine.retried + 1
            ELSE mine.retried
        END,
        stop = statement_timestamp(), output = $4::text, error = $3::text
    WHERE mine.id = $1::bigint
        AND CASE WHEN mine.id = $1::bigint THEN /*include own*/true ELSE false END
        AND /*include hasty*/true
    RETURNING mine.*, $5::timestamptz AS next_cron, $8::boolean AS is_last
), paused AS (
    /*include paused*/SELECT 1
)
SELECT mine.id, /*include again*/1 FROM mine;

-- name: remove
-- An end without result and error leaves no row, if the row says so.
DELETE FROM /*task*/task AS t
WHERE t.id = $1::bigint AND t.delete AND t.output IS NULL AND t.error IS NULL
    AND t.state = 'DONE' AND t.pid = $2::integer AND t.start = $3::timestamptz;

-- name: refuse
-- A task that could not be begun, for a reason that is its own.
WITH mine AS (
    UPDATE /*task*/task AS t
    SET state = CASE WHEN t.retried < t.retry THEN 'PLAN' ELSE 'FAIL'::/*state*/state END,
        plan = CASE
            WHEN t.retried < t.retry
            THEN statement_timestamp() + least(2 ^ least(t.retried, 12), 3600) * interval '1 second'
            ELSE t.plan
        END,
        retried = CASE WHEN t.retried < t.retry THEN t.retried + 1 ELSE t.retried END,
        start = NULL, pid = NULL, stop = statement_timestamp(), output = '', error = $2::text
    WHERE t.id = ANY (ARRAY(
        SELECT l.id FROM /*task*/task AS l
        WHERE l.id = $1::bigint AND l.state IN ('TAKE', 'PLAN')
            AND /*owned $3*/true
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING t.*, $4::timestamptz AS next_cron, $5::boolean AS is_last
), paused AS (
    /*include paused*/SELECT 1
)
SELECT mine.id, /*include again*/1 FROM mine;

-- name: refusable
SELECT t.id FROM /*task*/task AS t WHERE t.id = $1::bigint AND t.state IN ('TAKE', 'PLAN');

-- name: cron_of
SELECT nullif(btrim(t.cron), '') AS cron,
    (extract(epoch FROM greatest(t.plan, statement_timestamp())) * 1000000)::bigint AS after_us
FROM /*task*/task AS t WHERE t.id = $1::bigint;

-- name: again fragment
-- The next row of a task that comes again, unless that has proved impossible.
CASE
    WHEN mine.state = 'PLAN' OR mine.is_last THEN NULL
    WHEN btrim(mine.cron) <> '' THEN
        /*again*/gnomon_task_again(/*task_name*/'task'::regclass, mine.id, mine.next_cron)
    WHEN mine.repeat > interval '0' THEN
        /*again*/gnomon_task_again(
            /*task_name*/'task'::regclass, mine.id,
            /*next*/gnomon_task_next(mine.plan, mine.repeat, mine.drift, mine.stop)
        )
END AS again

-- name: paused fragment
-- The end of a task with a negative `max` puts off all due rows of its group that have one. A plan
-- before all time lies on no grid.
UPDATE /*task*/task AS t
SET plan = CASE
    WHEN t.drift OR NOT isfinite(t.plan)
    THEN mine.stop + -t.max::bigint * interval '1 millisecond'
    ELSE t.plan + -t.max::bigint * interval '1 millisecond' * (
        floor(extract(epoch FROM mine.stop - t.plan) * 1000 / -t.max::bigint) + 1
    )::double precision
END
FROM mine
WHERE mine.max < 0 AND t.max < 0 AND t.state = 'PLAN' AND t.plan <= mine.stop AND t.id <> mine.id
    AND /*key t*/hashtextextended(t."group", 0)
        = /*key mine*/hashtextextended(mine."group", 0)
    AND t."group" = mine."group" AND t.remote IS NOT DISTINCT FROM mine.remote
