-- name: last_id
SELECT coalesce(max(id), 0) FROM /*table*/task;

-- name: next_plan
SELECT min(plan) FROM /*table*/task WHERE state = 'PLAN' AND plan > :now;

-- name: due_groups
-- Jumps from group to group in the index, whatever number of rows they have; a page of groups.
WITH RECURSIVE known (name) AS (
    SELECT min("group") FROM /*table*/task
    WHERE state = 'PLAN' AND (:after IS NULL OR "group" > CAST(:after AS text))
    UNION ALL
    SELECT (SELECT min("group") FROM /*table*/task WHERE state = 'PLAN' AND "group" > known.name)
    FROM known
    WHERE known.name IS NOT NULL
    LIMIT :limit
)
SELECT known.name, (
    SELECT min(plan) FROM /*table*/task WHERE state = 'PLAN' AND "group" = known.name
) <= :now
FROM known
WHERE known.name IS NOT NULL;

-- name: new_groups
-- Ids are given in the order of commits: there is one writer. So many rows are looked at each way.
SELECT "group" FROM (
    SELECT "group", state, plan FROM /*table*/task NOT INDEXED WHERE id > :id ORDER BY id LIMIT :limit
) WHERE state = 'PLAN' AND plan <= :now
UNION
SELECT "group" FROM (
    SELECT "group" FROM /*table*/task INDEXED BY /*table*/task_plan_idx
    WHERE state = 'PLAN' AND plan > :plan AND plan <= :now ORDER BY plan LIMIT :limit
);

-- name: ripe_count
SELECT count(*) FROM (
    SELECT 1 FROM /*table*/task INDEXED BY /*table*/task_plan_idx
    WHERE state = 'PLAN' AND plan > :plan AND plan <= :now LIMIT :limit
);

-- name: first_to_expire
-- For each length of `active`, from one on, the row that has been waiting longest.
WITH RECURSIVE known (active) AS (
    SELECT min(active) FROM /*table*/task
    WHERE state = 'PLAN' AND "max" >= 0 AND active > CAST(:after AS text)
    UNION ALL
    SELECT (
        SELECT min(active) FROM /*table*/task
        WHERE state = 'PLAN' AND "max" >= 0 AND active > known.active
    )
    FROM known
    WHERE known.active IS NOT NULL
    LIMIT :limit
)
SELECT
    known.active,
    (
        SELECT min(plan) FROM /*table*/task
        WHERE state = 'PLAN' AND "max" >= 0 AND active = known.active
    )
FROM known
WHERE known.active IS NOT NULL;

-- name: due_first
-- Rows that expire have `max` from 0 on; those with a pause wait for ever.
SELECT id, plan FROM /*table*/task
WHERE state = 'PLAN' AND "max" >= 0 AND active = :active AND plan <= :now
ORDER BY plan
LIMIT :limit;

-- name: window_due
SELECT id, "max", count, live, plan, active, cron, since FROM /*table*/task
WHERE state = 'PLAN' AND "group" = CAST(:group AS text) AND plan <= :now
LIMIT :limit;

-- name: window_ordered
SELECT id, "max", count, live, plan, active, cron, since
FROM /*table*/task INDEXED BY /*table*/task_order_idx
WHERE state = 'PLAN' AND "group" = CAST(:group AS text) AND plan <= :now
ORDER BY max("max", 0) DESC, id
LIMIT :limit;

-- name: plan_first
-- A row with a `cron` and no plan of its own is planned for its first time.
UPDATE /*table*/task SET plan = :plan WHERE id = :id AND state = 'PLAN' AND plan = since;

-- name: row
-- What is needed to perform a task, and to see whether it is to be performed at all.
SELECT
    id, "group", remote, input, plan, state, pid, start, active, "max", count, live, timeout, save,
    header, string, delimiter, quote, "escape", "null", "repeat", cron
FROM /*table*/task
WHERE id = :id;

-- name: take
UPDATE /*table*/task SET state = 'WORK', start = :now, pid = :pid WHERE id = :id;

-- name: mark_taken
UPDATE /*table*/task SET state = 'TAKE' WHERE id = :id AND state = 'PLAN' AND plan <= :now;

-- name: untake
UPDATE /*table*/task SET state = 'PLAN', start = NULL, stop = NULL, pid = NULL
WHERE id = :id AND state IN ('TAKE', 'WORK');

-- name: busy
SELECT id, state, pid, start FROM /*table*/task WHERE state IN ('TAKE', 'WORK');

-- name: repetition
-- Read at the end, for the task itself may have changed it.
SELECT state, pid, start, plan, "repeat", cron, drift, "delete", retry, retried, since
FROM /*table*/task
WHERE id = :id;

-- name: end
UPDATE /*table*/task SET state = :state, stop = :now, output = :output, error = :error
WHERE id = :id;

-- name: expire
UPDATE /*table*/task SET state = 'GONE', start = :now, stop = :now, error = :error WHERE id = :id;

-- name: plan_again
-- The error stays to be seen until the next attempt has ended.
UPDATE /*table*/task SET
    state = 'PLAN', plan = :plan, retried = retried + 1, start = NULL, stop = :now, pid = NULL,
    output = :output, error = :error
WHERE id = :id;

-- name: repeat
INSERT INTO /*table*/task (parent, plan/*columns*/)
SELECT id, :plan/*columns*/ FROM /*table*/task WHERE id = :id;

-- name: remove
DELETE FROM /*table*/task WHERE id = :id;

-- name: pause
-- Every due row with a pause in the group of a task with one that has ended.
UPDATE /*table*/task SET plan = gnomon_paused(plan, "max", drift, :now)
WHERE state = 'PLAN' AND "group" = CAST(:group AS text) AND plan <= :now AND "max" < 0;

-- name: inherit
-- A task that a task inserts is its child and in its group, unless it says otherwise. Of this
-- connection only, where a task is performed.
CREATE TEMP TRIGGER gnomon_inherit AFTER INSERT ON main./*table*/task
WHEN current_setting('pg_task.id', true) IS NOT NULL
    AND (NEW.parent IS NULL OR NEW."group" = 'group')
BEGIN
    UPDATE /*table*/task SET
        parent = coalesce(parent, CAST(current_setting('pg_task.id', true) AS integer)),
        "group" = iif("group" = 'group', current_setting('pg_task.group', true), "group")
    WHERE id = NEW.id;
END;
