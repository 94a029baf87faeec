-- name: owners schema
-- Whose a table is. All tables of a file share this one.
CREATE TABLE gnomon_task_owner (
    table_name text PRIMARY KEY,
    lease_guid text,
    owner text,
    process text,
    beat integer NOT NULL DEFAULT 0,
    heartbeat_at text
) WITHOUT ROWID;

-- name: tasks schema
-- The columns, defaults and checks of pg_task, as far as SQLite has the types: times are text
-- like '2026-11-15 21:04:05.123456' (UTC), intervals text like '5 min', booleans 0 and 1.
CREATE TABLE /*table*/task (
    id integer PRIMARY KEY AUTOINCREMENT,
    parent integer,
    plan text NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
        CONSTRAINT /*table*/task_plan_check CHECK (
            plan GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' AND julianday(plan) IS NOT NULL
        ),
    start text,
    stop text,
    active text NOT NULL DEFAULT '1 hour'
        CONSTRAINT /*table*/task_active_check CHECK (active GLOB '*[1-9]*' AND active NOT GLOB '*-*'),
    live text NOT NULL DEFAULT '0'
        CONSTRAINT /*table*/task_live_check CHECK (live GLOB '*[0-9]*' AND live NOT GLOB '*-*'),
    "repeat" text NOT NULL DEFAULT '0'
        CONSTRAINT /*table*/task_repeat_check CHECK ("repeat" GLOB '*[0-9]*' AND "repeat" NOT GLOB '*-*'),
    timeout text NOT NULL DEFAULT '0'
        CONSTRAINT /*table*/task_timeout_check CHECK (timeout GLOB '*[0-9]*' AND timeout NOT GLOB '*-*'),
    count integer NOT NULL DEFAULT 0
        CONSTRAINT /*table*/task_count_check CHECK (typeof(count) = 'integer' AND count >= 0),
    "max" integer NOT NULL DEFAULT 0
        CONSTRAINT /*table*/task_max_check CHECK (
            typeof("max") = 'integer' AND "max" BETWEEN -2147483648 AND 2147483647
        ),
    pid integer,
    state text NOT NULL DEFAULT 'PLAN'
        CONSTRAINT /*table*/task_state_check CHECK (
            state IN ('PLAN', 'GONE', 'TAKE', 'WORK', 'DONE', 'FAIL', 'STOP')
        ),
    "delete" boolean NOT NULL DEFAULT true
        CONSTRAINT /*table*/task_delete_check CHECK ("delete" IN (0, 1)),
    drift boolean NOT NULL DEFAULT false
        CONSTRAINT /*table*/task_drift_check CHECK (drift IN (0, 1)),
    header boolean NOT NULL DEFAULT true
        CONSTRAINT /*table*/task_header_check CHECK (header IN (0, 1)),
    save boolean NOT NULL DEFAULT false
        CONSTRAINT /*table*/task_save_check CHECK (save IN (0, 1)),
    string boolean NOT NULL DEFAULT true
        CONSTRAINT /*table*/task_string_check CHECK (string IN (0, 1)),
    delimiter text NOT NULL DEFAULT (char(9)),
    "escape" text NOT NULL DEFAULT '',
    quote text NOT NULL DEFAULT '',
    data text,
    error text,
    "group" text NOT NULL DEFAULT 'group',
    input text NOT NULL,
    "null" text NOT NULL DEFAULT '\N',
    output text,
    remote text,
    cron text,
    retry integer NOT NULL DEFAULT 0
        CONSTRAINT /*table*/task_retry_check CHECK (typeof(retry) = 'integer' AND retry >= 0),
    retried integer NOT NULL DEFAULT 0
        CONSTRAINT /*table*/task_retried_check CHECK (typeof(retried) = 'integer' AND retried >= 0),
    since text DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
    -- A blob is no text, whatever the column says.
    CONSTRAINT /*table*/task_text_check CHECK (
        typeof(plan) = 'text' AND typeof(active) = 'text' AND typeof(live) = 'text'
        AND typeof("repeat") = 'text' AND typeof(timeout) = 'text' AND typeof("group") = 'text'
        AND typeof(input) = 'text' AND typeof("null") = 'text' AND typeof(delimiter) = 'text'
        AND typeof("escape") = 'text' AND typeof(quote) = 'text'
        AND typeof(cron) IN ('text', 'null')
    )
);

-- name: plan_idx schema
-- What comes due next.
CREATE INDEX /*table*/task_plan_idx ON /*table*/task (plan, "group") WHERE state = 'PLAN';

-- name: due_idx schema
-- Which groups have due rows, and which rows these are while they are few.
CREATE INDEX /*table*/task_due_idx ON /*table*/task ("group", plan) WHERE state = 'PLAN';

-- name: order_idx schema
-- The first rows of a group in their order, while many are due.
CREATE INDEX /*table*/task_order_idx ON /*table*/task ("group", max("max", 0) DESC, id)
WHERE state = 'PLAN';

-- name: expiry_idx schema
-- The rows that expire next, for each length of `active`.
CREATE INDEX /*table*/task_expiry_idx ON /*table*/task (active, plan)
WHERE state = 'PLAN' AND "max" >= 0;

-- name: busy_idx schema
-- What is taken. Not all states: the planner would take it for the indexes above.
CREATE INDEX /*table*/task_busy_idx ON /*table*/task ("group") WHERE state IN ('TAKE', 'WORK');

-- name: plan_insert schema
-- Times are compared as texts, so they are all written alike. A fraction of six digits is kept;
-- SQLite itself counts milliseconds.
CREATE TRIGGER /*table*/task_plan_insert AFTER INSERT ON /*table*/task
WHEN NEW.plan NOT GLOB '????-??-?? ??:??:??.[0-9][0-9][0-9][0-9][0-9][0-9]'
    OR date(NEW.plan, '+0 days') <> substr(NEW.plan, 1, 10)
BEGIN
    UPDATE /*table*/task SET plan = CASE
        WHEN substr(plan, 20, 7) GLOB '.[0-9][0-9][0-9][0-9][0-9][0-9]'
            AND substr(plan, 27, 1) NOT BETWEEN '0' AND '9'
        THEN strftime('%Y-%m-%d %H:%M:%S', substr(plan, 1, 19) || substr(plan, 27), '+0 days')
            || substr(plan, 20, 7)
        ELSE strftime('%Y-%m-%d %H:%M:%f000', plan, '+0 days')
    END
    WHERE id = NEW.id;
END;

-- name: plan_update schema
CREATE TRIGGER /*table*/task_plan_update AFTER UPDATE OF plan ON /*table*/task
WHEN NEW.plan NOT GLOB '????-??-?? ??:??:??.[0-9][0-9][0-9][0-9][0-9][0-9]'
    OR date(NEW.plan, '+0 days') <> substr(NEW.plan, 1, 10)
BEGIN
    UPDATE /*table*/task SET plan = CASE
        WHEN substr(plan, 20, 7) GLOB '.[0-9][0-9][0-9][0-9][0-9][0-9]'
            AND substr(plan, 27, 1) NOT BETWEEN '0' AND '9'
        THEN strftime('%Y-%m-%d %H:%M:%S', substr(plan, 1, 19) || substr(plan, 27), '+0 days')
            || substr(plan, 20, 7)
        ELSE strftime('%Y-%m-%d %H:%M:%f000', plan, '+0 days')
    END
    WHERE id = NEW.id;
END;

-- name: remote_insert schema
CREATE TRIGGER /*table*/task_remote_insert BEFORE INSERT ON /*table*/task
WHEN NEW.remote IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'remote tasks need PostgreSQL: this table is in a SQLite file');
END;

-- name: remote_update schema
CREATE TRIGGER /*table*/task_remote_update BEFORE UPDATE OF remote ON /*table*/task
WHEN NEW.remote IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'remote tasks need PostgreSQL: this table is in a SQLite file');
END;

-- name: waiting_view schema
-- Why each task that waits is not being performed, and until when, if that is known. A task that
-- changes much keeps its owner from beating, so that it speaks for the owner, too.
CREATE VIEW /*table*/task_waiting (id, why, until) AS
WITH present AS (
    SELECT
        strftime('%Y-%m-%d %H:%M:%f000', 'now') AS now,
        EXISTS (
            SELECT 1 FROM gnomon_task_owner AS o
            WHERE o.table_name = /*name*/'task' AND o.lease_guid IS NOT NULL
                AND (
                    o.heartbeat_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', '-5 seconds')
                    OR EXISTS (SELECT 1 FROM /*table*/task AS w WHERE w.state IN ('TAKE', 'WORK'))
                )
        ) AS is_owned
)
SELECT
    t.id,
    CASE
        WHEN t.state = 'STOP' THEN 'stopped'
        WHEN t.plan > present.now AND t."max" < 0 THEN 'paused'
        WHEN t.plan > present.now AND t.retried > 0 THEN 'tried again later'
        WHEN t.plan > present.now THEN 'planned later'
        WHEN NOT present.is_owned THEN 'nobody owns the table'
        WHEN t.state = 'TAKE' THEN 'being connected'
        WHEN (
            SELECT count(*) FROM /*table*/task AS w
            WHERE w.state IN ('TAKE', 'WORK') AND w."group" = t."group"
        ) > max(t."max", 0) THEN (
            SELECT 'behind ' || group_concat(w.id, ', ') || ' in its group'
            FROM /*table*/task AS w
            WHERE w.state IN ('TAKE', 'WORK') AND w."group" = t."group"
        )
        ELSE coalesce(
            (
                SELECT 'behind ' || a.id || ' in its group'
                FROM /*table*/task AS a
                WHERE a.state = 'PLAN' AND a.plan <= present.now AND a."group" = t."group"
                    AND (max(a."max", 0), -a.id) > (max(t."max", 0), -t.id)
                ORDER BY max(a."max", 0) DESC, a.id
                LIMIT 1
            ),
            'about to start'
        )
    END,
    CASE WHEN t.state <> 'STOP' AND t.plan > present.now THEN t.plan END
FROM /*table*/task AS t
CROSS JOIN present
WHERE t.state IN ('PLAN', 'TAKE', 'STOP');
