-- What happens to one task. `mine` is always the row that the statement is about.

-- name: take
-- TAKE or due PLAN becomes WORK. A row that waits beyond its `active` is left to `expire`. A take of
-- its own need not reach the disk before the task begins: the task's own commit comes after it.
UPDATE /*task*/task AS mine
SET state = 'WORK', start = statement_timestamp(), stop = NULL, pid = $3::integer
WHERE mine.id = $1::bigint
    AND (
        mine.state = 'TAKE'
        OR mine.state = 'PLAN'
            AND mine.plan <= statement_timestamp()
            AND (mine.max < 0 OR mine.plan + mine.active > statement_timestamp())
    )
    AND EXISTS (
        SELECT FROM /*owner*/gnomon_task_owner AS o
        WHERE o.table_name = /*table*/'task' AND o.lease_guid = $2::uuid
    )
    AND (NOT $4::boolean OR (SELECT set_config('synchronous_commit', 'off', true)) IS NOT NULL)
RETURNING
    mine.id, mine."group", mine.remote, mine.input, mine.plan, mine.start, mine.max, mine.count,
    mine.live, mine.timeout, mine.save, mine.header, mine.string,
    mine.delimiter, mine.quote, mine.escape, mine."null", mine.cron,
    current_setting('log_error_verbosity') AS verbosity,
    current_setting('log_min_error_statement') AS statement_level,
    CASE WHEN $5::boolean THEN set_config('pg_task.id', mine.id::text, false) END AS set_id,
    CASE WHEN $5::boolean AND current_setting('pg_task.group', true) IS DISTINCT FROM mine."group"
        THEN set_config('pg_task.group', mine."group", false) END AS set_group,
    CASE WHEN $5::boolean AND current_setting('application_name') <> $6::text
        THEN set_config('application_name', $6::text, false) END AS set_name;

-- name: finish
-- Writes the end of an attempt, if the row is still its own: WORK, this pid, this start. Where the
-- input has written nothing, the loss of this commit would only repeat it: no waiting for the disk.
WITH mine AS (
    UPDATE /*task*/task AS t
    SET state = CASE
            WHEN $5::text IS NULL THEN 'DONE'::/*state*/state
            WHEN t.retried < t.retry THEN 'PLAN'
            ELSE 'FAIL'
        END,
        plan = CASE
            WHEN $5::text IS NOT NULL AND t.retried < t.retry
            THEN statement_timestamp() + least(2 ^ least(t.retried, 12), 3600) * interval '1 second'
            ELSE t.plan
        END,
        start = CASE WHEN $5::text IS NOT NULL AND t.retried < t.retry THEN NULL ELSE t.start END,
        pid = CASE WHEN $5::text IS NOT NULL AND t.retried < t.retry THEN NULL ELSE t.pid END,
        retried = CASE
            WHEN $5::text IS NOT NULL AND t.retried < t.retry THEN t.retried + 1 ELSE t.retried
        END,
        stop = statement_timestamp(), output = $4::text, error = $5::text
    WHERE t.id = $1::bigint
        AND t.state = 'WORK' AND t.pid = $2::integer AND t.start = $3::timestamptz
        AND (
            NOT $7::boolean
            OR pg_current_xact_id_if_assigned() IS NOT NULL
            OR (SELECT set_config('synchronous_commit', 'off', true)) IS NOT NULL
        )
    RETURNING t.*, $6::timestamptz AS next_cron
)
SELECT mine.id, /*include again*/1 FROM mine;

-- name: finish_pausing
-- The same for a task with a negative `max`.
WITH mine AS (
    UPDATE /*task*/task AS t
    SET state = CASE
            WHEN $5::text IS NULL THEN 'DONE'::/*state*/state
            WHEN t.retried < t.retry THEN 'PLAN'
            ELSE 'FAIL'
        END,
        plan = CASE
            WHEN $5::text IS NOT NULL AND t.retried < t.retry
            THEN statement_timestamp() + least(2 ^ least(t.retried, 12), 3600) * interval '1 second'
            ELSE t.plan
        END,
        start = CASE WHEN $5::text IS NOT NULL AND t.retried < t.retry THEN NULL ELSE t.start END,
        pid = CASE WHEN $5::text IS NOT NULL AND t.retried < t.retry THEN NULL ELSE t.pid END,
        retried = CASE
            WHEN $5::text IS NOT NULL AND t.retried < t.retry THEN t.retried + 1 ELSE t.retried
        END,
        stop = statement_timestamp(), output = $4::text, error = $5::text
    WHERE t.id = $1::bigint
        AND t.state = 'WORK' AND t.pid = $2::integer AND t.start = $3::timestamptz
        AND (
            NOT $7::boolean
            OR pg_current_xact_id_if_assigned() IS NOT NULL
            OR (SELECT set_config('synchronous_commit', 'off', true)) IS NOT NULL
        )
    RETURNING t.*, $6::timestamptz AS next_cron
), paused AS (
    /*include paused*/SELECT 1
)
SELECT mine.id, /*include again*/1 FROM mine;

-- name: guard
-- After `finish` and before the commit: a row that another attempt has, or shall have, raises an
-- error, so that what shares this transaction cannot be committed. One that its user has stopped,
-- changed or deleted does not. A retry has given its row away itself.
SELECT ('taken over, now with ' || coalesce(t.pid, 0))::integer
FROM /*task*/task AS t
WHERE t.id = $1::bigint
    AND (t.pid IS DISTINCT FROM $2::integer OR t.start IS DISTINCT FROM $3::timestamptz)
    AND t.xmin <> pg_current_xact_id()::xid;

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
    WHERE t.id = $1::bigint AND t.state IN ('TAKE', 'PLAN')
        AND EXISTS (
            SELECT FROM /*owner*/gnomon_task_owner AS o
            WHERE o.table_name = /*table*/'task' AND o.lease_guid = $3::uuid
        )
    RETURNING t.*, $4::timestamptz AS next_cron
), paused AS (
    /*include paused*/SELECT 1
)
SELECT mine.id, /*include again*/1 FROM mine;

-- name: cron_of
SELECT nullif(btrim(t.cron), '') AS cron,
    (extract(epoch FROM greatest(t.plan, statement_timestamp())) * 1000000)::bigint AS after_us
FROM /*task*/task AS t WHERE t.id = $1::bigint;

-- name: again
-- The next row of a task that comes again.
CASE
    WHEN mine.state = 'PLAN' THEN NULL
    WHEN btrim(mine.cron) <> '' THEN
        /*again*/gnomon_task_again(/*task_name*/'task'::regclass, mine.id, mine.next_cron)
    WHEN mine.repeat > interval '0' THEN
        /*again*/gnomon_task_again(
            /*task_name*/'task'::regclass, mine.id,
            /*next*/gnomon_task_next(mine.plan, mine.repeat, mine.drift, mine.stop)
        )
END AS again

-- name: paused
-- The end of a task with a negative `max` puts off all due rows of its group that have one.
UPDATE /*task*/task AS t
SET plan = CASE
    WHEN t.drift THEN mine.stop + -t.max * interval '1 millisecond'
    ELSE t.plan + -t.max * interval '1 millisecond' * (
        floor(extract(epoch FROM mine.stop - t.plan) * 1000 / -t.max) + 1
    )::double precision
END
FROM mine
WHERE mine.max < 0 AND t.max < 0 AND t.state = 'PLAN' AND t.plan <= mine.stop AND t.id <> mine.id
    AND /*key t*/hashtextextended(t."group", 0)
        = /*key mine*/hashtextextended(mine."group", 0)
    AND t."group" = mine."group" AND t.remote IS NOT DISTINCT FROM mine.remote
