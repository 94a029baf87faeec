-- The table, and what belongs to it. All of it may be there already, from us or from pg_task.

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS /*schema*/public

-- name: create_type
CREATE TYPE /*state*/state AS ENUM ('PLAN', 'GONE', 'TAKE', 'WORK', 'DONE', 'FAIL', 'STOP')

-- name: create_table
-- Rows change several times and most soon lie dead: they are to be swept up early.
CREATE TABLE IF NOT EXISTS /*task*/task (id bigserial PRIMARY KEY) WITH (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05
)

-- name: add_columns
-- In the original's order. Each default can be set for a session, as with pg_task. What the original
-- checks is in `create_values`.
ALTER TABLE /*task*/task
    ADD COLUMN IF NOT EXISTS parent bigint
        DEFAULT nullif(nullif(current_setting('pg_task.id', true), '')::bigint, 0),
    ADD COLUMN IF NOT EXISTS plan timestamptz NOT NULL
        DEFAULT coalesce(nullif(nullif(current_setting('pg_task.plan', true), ''),
            'statement_timestamp()')::timestamptz, statement_timestamp()),
    ADD COLUMN IF NOT EXISTS start timestamptz,
    ADD COLUMN IF NOT EXISTS stop timestamptz,
    ADD COLUMN IF NOT EXISTS active interval NOT NULL
        DEFAULT coalesce(nullif(current_setting('pg_task.active', true), '')::interval, '1 hour'),
    ADD COLUMN IF NOT EXISTS live interval NOT NULL
        DEFAULT coalesce(nullif(current_setting('pg_task.live', true), '')::interval, '0'),
    ADD COLUMN IF NOT EXISTS repeat interval NOT NULL
        DEFAULT coalesce(nullif(current_setting('pg_task.repeat', true), '')::interval, '0'),
    ADD COLUMN IF NOT EXISTS timeout interval NOT NULL
        DEFAULT coalesce(nullif(current_setting('pg_task.timeout', true), '')::interval, '0'),
    ADD COLUMN IF NOT EXISTS count integer NOT NULL
        DEFAULT coalesce(nullif(current_setting('pg_task.count', true), '')::integer, 0),
    ADD COLUMN IF NOT EXISTS max integer NOT NULL
        DEFAULT coalesce(nullif(current_setting('pg_task.max', true), '')::integer, 0),
    ADD COLUMN IF NOT EXISTS pid integer,
    ADD COLUMN IF NOT EXISTS state /*state*/state NOT NULL DEFAULT 'PLAN',
    ADD COLUMN IF NOT EXISTS delete boolean NOT NULL
        DEFAULT coalesce(nullif(current_setting('pg_task.delete', true), '')::boolean, true),
    ADD COLUMN IF NOT EXISTS drift boolean NOT NULL
        DEFAULT coalesce(nullif(current_setting('pg_task.drift', true), '')::boolean, false),
    ADD COLUMN IF NOT EXISTS header boolean NOT NULL
        DEFAULT coalesce(nullif(current_setting('pg_task.header', true), '')::boolean, true),
    ADD COLUMN IF NOT EXISTS save boolean NOT NULL
        DEFAULT coalesce(nullif(current_setting('pg_task.save', true), '')::boolean, false),
    ADD COLUMN IF NOT EXISTS string boolean NOT NULL
        DEFAULT coalesce(nullif(current_setting('pg_task.string', true), '')::boolean, true),
    ADD COLUMN IF NOT EXISTS delimiter "char" NOT NULL
        DEFAULT coalesce(current_setting('pg_task.delimiter', true)::"char", E'\t'),
    ADD COLUMN IF NOT EXISTS escape "char" NOT NULL
        DEFAULT coalesce(nullif(current_setting('pg_task.escape', true), '')::"char", ''),
    ADD COLUMN IF NOT EXISTS quote "char" NOT NULL
        DEFAULT coalesce(nullif(current_setting('pg_task.quote', true), '')::"char", ''),
    ADD COLUMN IF NOT EXISTS data text,
    ADD COLUMN IF NOT EXISTS error text,
    ADD COLUMN IF NOT EXISTS "group" text NOT NULL
        DEFAULT coalesce(nullif(current_setting('pg_task.group', true), ''), 'group'),
    ADD COLUMN IF NOT EXISTS input text NOT NULL,
    ADD COLUMN IF NOT EXISTS "null" text NOT NULL
        DEFAULT coalesce(current_setting('pg_task.null', true), E'\\N'),
    ADD COLUMN IF NOT EXISTS output text,
    ADD COLUMN IF NOT EXISTS remote text,
    ADD COLUMN IF NOT EXISTS cron text,
    ADD COLUMN IF NOT EXISTS retry integer NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS retried integer NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS since timestamptz DEFAULT statement_timestamp()

-- name: set_defaults
-- pg_task's own defaults fail where it is not loaded.
ALTER TABLE /*task*/task
    ALTER COLUMN parent SET
        DEFAULT nullif(nullif(current_setting('pg_task.id', true), '')::bigint, 0),
    ALTER COLUMN plan SET
        DEFAULT coalesce(nullif(nullif(current_setting('pg_task.plan', true), ''),
            'statement_timestamp()')::timestamptz, statement_timestamp()),
    ALTER COLUMN active SET
        DEFAULT coalesce(nullif(current_setting('pg_task.active', true), '')::interval, '1 hour'),
    ALTER COLUMN live SET
        DEFAULT coalesce(nullif(current_setting('pg_task.live', true), '')::interval, '0'),
    ALTER COLUMN repeat SET
        DEFAULT coalesce(nullif(current_setting('pg_task.repeat', true), '')::interval, '0'),
    ALTER COLUMN timeout SET
        DEFAULT coalesce(nullif(current_setting('pg_task.timeout', true), '')::interval, '0'),
    ALTER COLUMN count SET
        DEFAULT coalesce(nullif(current_setting('pg_task.count', true), '')::integer, 0),
    ALTER COLUMN max SET
        DEFAULT coalesce(nullif(current_setting('pg_task.max', true), '')::integer, 0),
    ALTER COLUMN state SET DEFAULT 'PLAN',
    ALTER COLUMN delete SET
        DEFAULT coalesce(nullif(current_setting('pg_task.delete', true), '')::boolean, true),
    ALTER COLUMN drift SET
        DEFAULT coalesce(nullif(current_setting('pg_task.drift', true), '')::boolean, false),
    ALTER COLUMN header SET
        DEFAULT coalesce(nullif(current_setting('pg_task.header', true), '')::boolean, true),
    ALTER COLUMN save SET
        DEFAULT coalesce(nullif(current_setting('pg_task.save', true), '')::boolean, false),
    ALTER COLUMN string SET
        DEFAULT coalesce(nullif(current_setting('pg_task.string', true), '')::boolean, true),
    ALTER COLUMN delimiter SET
        DEFAULT coalesce(current_setting('pg_task.delimiter', true)::"char", E'\t'),
    ALTER COLUMN escape SET
        DEFAULT coalesce(nullif(current_setting('pg_task.escape', true), '')::"char", ''),
    ALTER COLUMN quote SET
        DEFAULT coalesce(nullif(current_setting('pg_task.quote', true), '')::"char", ''),
    ALTER COLUMN "group" SET
        DEFAULT coalesce(nullif(current_setting('pg_task.group', true), ''), 'group'),
    ALTER COLUMN "null" SET
        DEFAULT coalesce(current_setting('pg_task.null', true), E'\\N')

-- name: create_plan_index
CREATE INDEX IF NOT EXISTS /*name*/task_gnomon_plan_idx ON /*task*/task (plan)
WHERE state = 'PLAN'

-- name: create_due_index
CREATE INDEX IF NOT EXISTS /*name*/task_gnomon_due_idx ON /*task*/task
    ((/*key -*/hashtextextended("group", 0)), plan)
WHERE state = 'PLAN'

-- name: create_order_index
CREATE INDEX IF NOT EXISTS /*name*/task_gnomon_order_idx ON /*task*/task
    ((/*key -*/hashtextextended("group", 0)), (greatest(max, 0)) DESC, id)
WHERE state = 'PLAN'

-- name: create_expiry_index
CREATE INDEX IF NOT EXISTS /*name*/task_gnomon_expiry_idx ON /*task*/task
    ((/*expiry -*/plan))
WHERE state = 'PLAN' AND max >= 0

-- name: create_work_index
CREATE INDEX IF NOT EXISTS /*name*/task_gnomon_work_idx ON /*task*/task (id)
WHERE state IN ('TAKE', 'WORK')

-- name: create_owner
CREATE TABLE IF NOT EXISTS /*owner*/gnomon_task_owner (
    table_name text PRIMARY KEY,
    lease_guid uuid,
    owner text NOT NULL,
    process text,
    beat bigint NOT NULL,
    heartbeat_at timestamptz NOT NULL
) WITH (fillfactor = 20)

-- name: create_next
-- When a repeat is: with drift from the end, else on the grid of `plan`, at the first step after the
-- end. Steps of months and days are taken one by one, as the calendar has them. An interval that
-- leads nowhere (a month less thirty days) counts from the end, and so does a plan before all time;
-- what the calendar does not reach does not come.
CREATE OR REPLACE FUNCTION /*next*/gnomon_task_next(
    plan timestamptz, repeat interval, drift boolean, stop timestamptz
) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $next$
DECLARE
    step timestamptz;
BEGIN
    IF drift OR NOT isfinite(plan) THEN
        RETURN stop + repeat;
    END IF;
    IF extract(year FROM repeat) = 0 AND extract(month FROM repeat) = 0
        AND extract(day FROM repeat) = 0
    THEN
        RETURN plan + repeat * greatest(
            1, floor(extract(epoch FROM stop - plan) / extract(epoch FROM repeat)) + 1
        )::double precision;
    END IF;
    step := plan + repeat;
    FOR steps IN 1..100000 LOOP
        IF step > stop THEN
            RETURN step;
        END IF;
        step := step + repeat;
    END LOOP;
    RETURN stop + repeat;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
$next$

-- name: create_again
-- The next row of a task: all columns but those that tell of one attempt, also those that users have
-- added. Nothing without a time.
CREATE OR REPLACE FUNCTION /*again*/gnomon_task_again(task regclass, id bigint, plan timestamptz)
RETURNS void LANGUAGE plpgsql AS $again$
DECLARE
    columns text;
BEGIN
    IF plan IS NULL THEN
        RETURN;
    END IF;
    SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) INTO columns
    FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = task AND a.attnum > 0 AND NOT a.attisdropped
        AND a.attgenerated = '' AND a.attidentity = ''
        AND a.attname NOT IN (
            'id', 'parent', 'plan', 'start', 'stop', 'pid', 'state', 'error', 'output', 'retried',
            'since'
        );
    EXECUTE format(
        'INSERT INTO %1$s (parent, plan, %2$s) SELECT id, $2, %2$s FROM %1$s WHERE id = $1',
        task, columns
    ) USING id, plan;
END
$again$

-- name: create_values
-- The original's CHECKs, in the server's words. The server would read and evaluate them anew with
-- every change of a row; these are asked only where a value is given.
CREATE OR REPLACE FUNCTION /*values*/gnomon_task_values() RETURNS trigger LANGUAGE plpgsql AS $values$
DECLARE
    refused text := CASE
        WHEN NOT NEW.active > interval '0' THEN 'active'
        WHEN NOT NEW.live >= interval '0' THEN 'live'
        WHEN NOT NEW.repeat >= interval '0' THEN 'repeat'
        WHEN NOT NEW.timeout >= interval '0' THEN 'timeout'
        WHEN NOT NEW.count >= 0 THEN 'count'
        WHEN NOT NEW.retry >= 0 THEN 'retry'
        ELSE 'retried'
    END;
BEGIN
    RAISE check_violation USING
        MESSAGE = pg_catalog.format(
            'new row for relation "%s" violates check constraint "%s_%s_check"',
            TG_TABLE_NAME, TG_TABLE_NAME, refused
        ),
        CONSTRAINT = TG_TABLE_NAME || '_' || refused || '_check',
        SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
END
$values$

-- name: create_check_of_values
CREATE TRIGGER gnomon_task_values_check
AFTER INSERT OR UPDATE OF active, live, repeat, timeout, count, retry, retried ON /*task*/task
FOR EACH ROW WHEN (
    NOT (
        NEW.active > interval '0' AND NEW.live >= interval '0' AND NEW.repeat >= interval '0'
        AND NEW.timeout >= interval '0' AND NEW.count >= 0 AND NEW.retry >= 0 AND NEW.retried >= 0
    )
) EXECUTE FUNCTION /*values*/gnomon_task_values()

-- name: create_hint
CREATE OR REPLACE FUNCTION /*hint*/gnomon_task_hint() RETURNS trigger LANGUAGE plpgsql AS $hint$
BEGIN
    PERFORM pg_catalog.pg_notify('gnomon_task_' || TG_RELID, '');
    RETURN NULL;
END
$hint$

-- name: create_hint_of_inserts
-- One hint for each statement, however many rows it brings.
CREATE TRIGGER gnomon_task_hint AFTER INSERT ON /*task*/task
FOR EACH STATEMENT EXECUTE FUNCTION /*hint*/gnomon_task_hint()

-- name: create_hint_of_updates
CREATE TRIGGER gnomon_task_update_hint AFTER UPDATE OF state, plan, max ON /*task*/task
FOR EACH ROW WHEN (NEW.state = 'PLAN') EXECUTE FUNCTION /*hint*/gnomon_task_hint()

-- name: create_waiting
-- Why each task that waits is not being performed, and until when, if that is known.
CREATE VIEW /*waiting*/task_waiting AS
SELECT t.id,
    CASE
        WHEN t.state = 'STOP' THEN 'stopped'
        WHEN t.plan > statement_timestamp() AND t.max < 0 THEN 'paused'
        WHEN t.plan > statement_timestamp() AND t.retried > 0 THEN 'tried again later'
        WHEN t.plan > statement_timestamp() THEN 'planned later'
        WHEN NOT EXISTS (
            SELECT FROM /*owner*/gnomon_task_owner AS o
            WHERE o.table_name = /*table*/'task' AND o.lease_guid IS NOT NULL
                AND o.heartbeat_at > statement_timestamp() - interval '5 seconds'
        ) THEN 'nobody owns the table'
        WHEN t.state = 'TAKE' THEN 'being connected'
        WHEN working.count > greatest(t.max, 0) THEN 'behind ' || working.ids || ' in its group'
        WHEN ahead.id IS NOT NULL THEN 'behind ' || ahead.id || ' in its group'
        ELSE 'about to start'
    END AS why,
    CASE WHEN t.state <> 'STOP' AND t.plan > statement_timestamp() THEN t.plan END AS until
FROM /*task*/task AS t
LEFT JOIN LATERAL (
    SELECT count(*) AS count, string_agg(w.id::text, ', ' ORDER BY w.id) AS ids
    FROM /*task*/task AS w
    WHERE w.state IN ('TAKE', 'WORK') AND w.id <> t.id
        AND w."group" = t."group" AND w.remote IS NOT DISTINCT FROM t.remote
) AS working ON true
LEFT JOIN LATERAL (
    SELECT a.id FROM /*task*/task AS a
    WHERE a.state = 'PLAN' AND a.plan <= statement_timestamp() AND a.id <> t.id
        AND /*key a*/hashtextextended(a."group", 0) = /*key t*/hashtextextended(t."group", 0)
        AND a."group" = t."group" AND a.remote IS NOT DISTINCT FROM t.remote
        AND (greatest(a.max, 0), -a.id) > (greatest(t.max, 0), -t.id)
    ORDER BY /*key a*/hashtextextended(a."group", 0), greatest(a.max, 0) DESC, a.id LIMIT 1
) AS ahead ON true
WHERE t.state IN ('PLAN', 'TAKE', 'STOP')

-- name: look
-- What there is of all this.
SELECT
    to_regnamespace($3::text) IS NOT NULL AS schema,
    to_regtype($4::text) IS NOT NULL AS state,
    to_regclass($1::text) IS NOT NULL AS task,
    to_regclass($2::text) IS NOT NULL AS owner,
    to_regclass($5::text) IS NOT NULL AS waiting,
    (SELECT c.relkind FROM pg_class AS c WHERE c.oid = to_regclass($1::text)) AS kind

-- name: look_columns
-- The columns, with their defaults; the type of `state` with its schema.
SELECT a.attname, coalesce(pg_get_expr(d.adbin, d.adrelid), '') AS written_default,
    quote_ident(n.nspname) || '.' || quote_ident(y.typname) AS type
FROM pg_attribute AS a
JOIN pg_type AS y ON y.oid = a.atttypid
JOIN pg_namespace AS n ON n.oid = y.typnamespace
LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum

-- name: look_parts
-- Indexes, triggers and functions that are there by name.
SELECT c.relname AS name FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
WHERE i.indrelid = to_regclass($1::text)
UNION ALL
SELECT g.tgname FROM pg_trigger AS g WHERE g.tgrelid = to_regclass($1::text)
UNION ALL
SELECT p.proname FROM pg_proc AS p
WHERE p.proname IN ('gnomon_task_hint', 'gnomon_task_next', 'gnomon_task_again', 'gnomon_task_values')
    AND p.pronamespace = to_regnamespace($2::text)

-- name: look_role
SELECT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = $1::text) AS role,
    EXISTS (SELECT FROM pg_database AS d WHERE d.datname = $2::text) AS database

-- name: create_role
CREATE ROLE /*role*/task LOGIN

-- name: create_role_with_password
CREATE ROLE /*role*/task LOGIN PASSWORD /*password*/''

-- name: create_database
CREATE DATABASE /*database*/task OWNER /*role*/task
