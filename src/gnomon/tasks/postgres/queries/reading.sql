-- What people and programs ask about the rows of a table.

-- name: take_bytes
-- In a database without an encoding a text is any bytes, and the server would refuse to send them.
SET client_encoding = 'SQL_ASCII'

-- name: task_page
-- Some rows in order of id, with their long texts cut; who connects how is never so long.
SELECT json_build_object(
    'id', t.id, 'parent', t.parent, 'group', left(t."group", $5::integer),
    'remote', left(t.remote, $6::integer), 'state', t.state, 'plan', /*moment*/t.plan,
    'start', /*moment*/t.start, 'stop', /*moment*/t.stop, 'pid', t.pid, 'max', t.max,
    'input', left(t.input, $5::integer), 'error', left(t.error, $5::integer)
)
FROM /*task*/task AS t
WHERE t.id > $1::bigint AND t.id <= coalesce($7::bigint, 9223372036854775807)
    AND ($2::text IS NULL OR t.state::text = ANY (string_to_array($2::text, ',')))
    AND ($3::text IS NULL OR t."group" = $3::text)
ORDER BY t.id
LIMIT $4::integer

-- name: task_page_end
SELECT t.id FROM /*task*/task AS t WHERE t.id > $1::bigint ORDER BY t.id OFFSET $2::bigint - 1 LIMIT 1

-- name: task_detail
-- One row; without an id the one that this session has inserted last.
SELECT json_build_object(
    'id', t.id, 'parent', t.parent, 'group', /*cut*/t."group", 'remote', left(t.remote, $2::integer),
    'state', t.state, 'plan', /*moment*/t.plan, 'start', /*moment*/t.start, 'stop', /*moment*/t.stop,
    'pid', t.pid, 'active', t.active::text, 'live', t.live::text, 'repeat', t.repeat::text,
    'cron', /*cut*/t.cron, 'timeout', t.timeout::text, 'count', t.count, 'max', t.max,
    'retry', t.retry, 'retried', t.retried, 'delete', t.delete, 'drift', t.drift,
    'data', /*cut*/t.data, 'input', /*cut*/t.input, 'output', /*cut*/t.output,
    'error', /*cut*/t.error, 'why', w.why, 'until', /*moment*/w.until
)
FROM /*task*/task AS t
LEFT JOIN LATERAL (
    SELECT v.why, v.until FROM /*waiting*/task_waiting AS v WHERE v.id = t.id
) AS w ON true
WHERE t.id = coalesce(
    $1::bigint, currval(pg_get_serial_sequence(/*task_name*/'task', 'id')), lastval()
)

-- name: hold_task
-- Before it is changed: who finds it held comes again, and waits in nobody's way.
SELECT FROM /*task*/task WHERE id = $1::bigint FOR UPDATE NOWAIT

-- name: insert_task
-- With the defaults of all columns but these; `fill_task` follows in the same transaction.
INSERT INTO /*task*/task (input, plan)
VALUES ($1::json ->> 'input', coalesce(($1::json ->> 'plan')::timestamptz, statement_timestamp()))

-- name: fill_task
-- What was given replaces the default. The row is the last one that this session has inserted.
UPDATE /*task*/task AS t
SET "group" = coalesce(draft ->> 'group', t."group"),
    remote = coalesce(draft ->> 'remote', t.remote),
    active = coalesce((draft ->> 'active')::interval, t.active),
    live = coalesce((draft ->> 'live')::interval, t.live),
    repeat = coalesce((draft ->> 'repeat')::interval, t.repeat),
    cron = coalesce(draft ->> 'cron', t.cron),
    timeout = coalesce((draft ->> 'timeout')::interval, t.timeout),
    count = coalesce((draft ->> 'count')::integer, t.count),
    max = coalesce((draft ->> 'max')::integer, t.max),
    retry = coalesce((draft ->> 'retry')::integer, t.retry),
    delete = coalesce((draft ->> 'delete')::boolean, t.delete),
    drift = coalesce((draft ->> 'drift')::boolean, t.drift),
    header = coalesce((draft ->> 'header')::boolean, t.header),
    save = coalesce((draft ->> 'save')::boolean, t.save),
    string = coalesce((draft ->> 'string')::boolean, t.string),
    delimiter = coalesce((draft ->> 'delimiter')::"char", t.delimiter),
    quote = coalesce((draft ->> 'quote')::"char", t.quote),
    escape = coalesce((draft ->> 'escape')::"char", t.escape),
    "null" = coalesce(draft ->> 'null', t."null"),
    data = coalesce(draft ->> 'data', t.data)
FROM (SELECT $1::json AS draft) AS given
WHERE t.id = coalesce(currval(pg_get_serial_sequence(/*task_name*/'task', 'id')), lastval())

-- name: live_tasks
-- Two looks, for each has an index of its own.
SELECT least($1::bigint, (
    SELECT count(*) FROM (SELECT FROM /*task*/task WHERE state = 'PLAN' LIMIT $1::bigint) AS a
) + (
    SELECT count(*) FROM (
        SELECT FROM /*task*/task WHERE state IN ('TAKE', 'WORK') LIMIT $1::bigint
    ) AS b
))

-- name: stop_task
UPDATE /*task*/task SET state = 'STOP'
WHERE id = $1::bigint AND state IN ('PLAN', 'TAKE', 'WORK')

-- name: plan_task
-- Due at once where its time is over: else it would expire at once.
UPDATE /*task*/task
SET state = 'PLAN', plan = greatest(plan, statement_timestamp()), start = NULL, stop = NULL,
    pid = NULL
WHERE id = $1::bigint AND state IN ('STOP', 'DONE', 'FAIL', 'GONE')
