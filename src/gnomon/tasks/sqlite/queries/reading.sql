-- What people and programs ask about the rows of a table.

-- name: task_page
SELECT id, parent, substr("group", 1, :chars) AS "group", remote, state, plan, start, stop, pid, "max",
    substr(input, 1, :chars) AS input, substr(error, 1, :chars) AS error
FROM /*table*/task
WHERE id > :after AND id <= coalesce(:until, 9223372036854775807)
    AND (:states IS NULL OR instr(:states, state) > 0)
    AND (:group IS NULL OR "group" = :group)
ORDER BY id
LIMIT :limit;

-- name: task_page_end
SELECT id FROM /*table*/task WHERE id > :after ORDER BY id LIMIT 1 OFFSET :looks - 1;

-- name: task_detail
-- The view is asked for this one only: joined, it would be made of the whole table.
SELECT task.id, parent, "group", remote, state, plan, start, stop, pid, active, live, "repeat", cron,
    timeout, count, "max", retry, retried, "delete", drift, data, input, output, error,
    (SELECT waiting.why FROM /*table*/task_waiting AS waiting WHERE waiting.id = :id) AS why,
    (SELECT waiting.until FROM /*table*/task_waiting AS waiting WHERE waiting.id = :id) AS until
FROM /*table*/task AS task
WHERE task.id = :id;

-- name: insert_task
-- With the defaults of all columns but this one; `fill_task` follows in the same transaction.
INSERT INTO /*table*/task (input) VALUES (:input);

-- name: fill_task
-- What was given replaces the default.
UPDATE /*table*/task SET
    "group" = coalesce(:group, "group"), remote = coalesce(:remote, remote),
    plan = coalesce(:plan, plan), active = coalesce(:active, active), live = coalesce(:live, live),
    "repeat" = coalesce(:repeat, "repeat"), cron = coalesce(:cron, cron),
    timeout = coalesce(:timeout, timeout), count = coalesce(:count, count),
    "max" = coalesce(:max, "max"), retry = coalesce(:retry, retry),
    "delete" = coalesce(:delete, "delete"), drift = coalesce(:drift, drift),
    header = coalesce(:header, header), save = coalesce(:save, save),
    string = coalesce(:string, string), delimiter = coalesce(:delimiter, delimiter),
    quote = coalesce(:quote, quote), "escape" = coalesce(:escape, "escape"),
    "null" = coalesce(:null, "null"), data = coalesce(:data, data)
WHERE id = :id;

-- name: live_tasks
SELECT min(:limit, (
    SELECT count(*) FROM (SELECT 1 FROM /*table*/task WHERE state = 'PLAN' LIMIT :limit)
) + (
    SELECT count(*) FROM (
        SELECT 1 FROM /*table*/task WHERE state IN ('TAKE', 'WORK') LIMIT :limit
    )
));

-- name: stop_task
UPDATE /*table*/task SET state = 'STOP' WHERE id = :id AND state IN ('PLAN', 'TAKE', 'WORK');

-- name: plan_task
-- Due at once where its time is over: else it would expire at once.
UPDATE /*table*/task SET
    state = 'PLAN', plan = max(plan, strftime('%Y-%m-%d %H:%M:%f000', 'now')), start = NULL,
    stop = NULL, pid = NULL
WHERE id = :id AND state IN ('STOP', 'DONE', 'FAIL', 'GONE');
