-- What the owner of a table asks. These run on a connection of its own, whose planner is told to
-- prefer indexes: with fresh statistics or none, a table of any size must not be read as a whole.

-- name: acquire
-- Take the table, unless another's lease is alive by the database's clock.
INSERT INTO /*owner*/gnomon_task_owner AS o (table_name, lease_guid, owner, beat, heartbeat_at)
VALUES (/*table*/'task', $1::uuid, $2::text, 0, clock_timestamp())
ON CONFLICT (table_name) DO UPDATE
SET lease_guid = excluded.lease_guid, owner = excluded.owner, beat = 0,
    heartbeat_at = excluded.heartbeat_at
WHERE o.lease_guid IS NULL
    OR o.heartbeat_at + $3::double precision * interval '1 second' <= clock_timestamp()
RETURNING o.lease_guid;

-- name: beat
UPDATE /*owner*/gnomon_task_owner AS o
SET beat = o.beat + 1, heartbeat_at = clock_timestamp()
WHERE o.table_name = /*table*/'task' AND o.lease_guid = $1::uuid
RETURNING o.beat;

-- name: release
UPDATE /*owner*/gnomon_task_owner AS o SET lease_guid = NULL
WHERE o.table_name = /*table*/'task' AND o.lease_guid = $1::uuid;

-- name: poll_all
-- All groups with due rows: a leap from group to group along the index, not a walk over the rows.
WITH RECURSIVE present AS (
    SELECT statement_timestamp() AS now
), leaps AS (
    (
        SELECT /*key t*/hashtextextended(t."group", 0) AS key FROM /*task*/task AS t
        WHERE t.state = 'PLAN' ORDER BY 1 LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT /*key t*/hashtextextended(t."group", 0) FROM /*task*/task AS t
        WHERE t.state = 'PLAN' AND /*key t*/hashtextextended(t."group", 0) > leaps.key
        ORDER BY 1 LIMIT 1
    )
    FROM leaps WHERE leaps.key IS NOT NULL
)
SELECT
    first."group", first.remote,
    (extract(epoch FROM (
        SELECT min(t.plan + t.active) FROM /*task*/task AS t
        WHERE t.state = 'PLAN' AND t.plan <= present.now AND t.max >= 0
            AND /*key t*/hashtextextended(t."group", 0) = leaps.key
    )) * 1000000)::bigint AS expiry_us
FROM present, leaps, LATERAL (
    SELECT t."group", t.remote FROM /*task*/task AS t
    WHERE t.state = 'PLAN' AND /*key t*/hashtextextended(t."group", 0) = leaps.key
        AND t.plan <= present.now
    ORDER BY t.plan LIMIT 1
) AS first;

-- name: poll_since
-- Groups with due rows that are new, or that have come due, since the last poll.
WITH fresh AS (
    SELECT n."group", n.remote, n.plan + n.active AS expiry, n.max
    FROM (
        -- By their ids, in order, so that none of the indexes of all due rows is walked over.
        SELECT t."group", t.remote, t.plan, t.active, t.max, t.state FROM /*task*/task AS t
        WHERE t.id > $1::bigint ORDER BY t.id OFFSET 0
    ) AS n
    WHERE n.state = 'PLAN' AND n.plan <= statement_timestamp()
    UNION ALL
    SELECT t."group", t.remote, t.plan + t.active, t.max FROM /*task*/task AS t
    WHERE t.state = 'PLAN' AND t.plan > $2::timestamptz AND t.plan <= statement_timestamp()
)
SELECT f."group", f.remote,
    (extract(epoch FROM min(f.expiry) FILTER (WHERE f.max >= 0)) * 1000000)::bigint AS expiry_us
FROM fresh AS f GROUP BY f."group", f.remote;

-- name: poll_mark
-- The present, how far ids go, and the next row that is to come due.
SELECT
    (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS now_us,
    coalesce((SELECT max(t.id) FROM /*task*/task AS t), 0) AS id,
    (extract(epoch FROM (
        SELECT min(t.plan) FROM /*task*/task AS t
        WHERE t.state = 'PLAN' AND t.plan > statement_timestamp() AND t.plan < 'infinity'
    )) * 1000000)::bigint AS next_plan_us;

-- name: window_few
-- The due rows of a group, if there are at most $5: found by their plan, put in order here. With them
-- what they will send, if that is short and they may follow another on its session.
WITH due AS MATERIALIZED (
    SELECT t.id, t.max, t.count, t.live,
        CASE
            WHEN (t.count > 0 OR t.live > interval '0') AND t.cron IS NULL
                AND octet_length(t.input) <= $4::integer
            THEN t.input
        END AS input
    FROM /*task*/task AS t
    WHERE t.state = 'PLAN' AND /*key*/hashtextextended($1::text, 0)
            = /*key t*/hashtextextended(t."group", 0)
        AND t."group" = $1::text AND t.remote IS NOT DISTINCT FROM $2::text
        AND t.plan <= statement_timestamp()
    ORDER BY /*key t*/hashtextextended(t."group", 0), t.plan LIMIT $5::bigint + 1
)
SELECT d.id, d.max, d.count, extract(epoch FROM d.live)::double precision AS live_s, d.input,
    count(*) OVER () AS found
FROM due AS d ORDER BY greatest(d.max, 0) DESC, d.id LIMIT $3::bigint;

-- name: window_many
-- The first due rows of a group, along the index that has them in order.
SELECT t.id, t.max, t.count, extract(epoch FROM t.live)::double precision AS live_s,
    CASE
        WHEN (t.count > 0 OR t.live > interval '0') AND t.cron IS NULL
            AND octet_length(t.input) <= $4::integer
        THEN t.input
    END AS input
FROM /*task*/task AS t
WHERE t.state = 'PLAN' AND /*key*/hashtextextended($1::text, 0)
        = /*key t*/hashtextextended(t."group", 0)
    AND t."group" = $1::text AND t.remote IS NOT DISTINCT FROM $2::text
    AND t.plan <= statement_timestamp()
ORDER BY /*key t*/hashtextextended(t."group", 0), greatest(t.max, 0) DESC, t.id LIMIT $3::bigint;

-- name: mark_taken
UPDATE /*task*/task AS t SET state = 'TAKE'
WHERE t.id = ANY ($1::bigint[]) AND t.state = 'PLAN' AND t.plan <= clock_timestamp()
    AND EXISTS (
        SELECT FROM /*owner*/gnomon_task_owner AS o
        WHERE o.table_name = /*table*/'task' AND o.lease_guid = $2::uuid
    )
RETURNING t.id;

-- name: untake
UPDATE /*task*/task AS t SET state = 'PLAN', start = NULL, stop = NULL, pid = NULL
WHERE t.id = ANY ($1::bigint[]) AND t.state IN ('TAKE', 'WORK')
    AND EXISTS (
        SELECT FROM /*owner*/gnomon_task_owner AS o
        WHERE o.table_name = /*table*/'task' AND o.lease_guid = $2::uuid
    );

-- name: rescue
-- Rows that nobody works on go back: local WORK whose backend is gone; TAKE with $2; remote WORK
-- with $3. A backend whose beginning we may not see is taken for alive.
UPDATE /*task*/task AS t SET state = 'PLAN', start = NULL, stop = NULL, pid = NULL
WHERE t.state IN ('TAKE', 'WORK')
    AND CASE
        WHEN t.state = 'TAKE' THEN $2::boolean
        WHEN t.remote IS NOT NULL THEN $3::boolean
        ELSE NOT EXISTS (
            SELECT FROM pg_stat_activity AS a
            WHERE a.pid = t.pid AND coalesce(a.backend_start <= t.start, true)
        )
    END
    AND EXISTS (
        SELECT FROM /*owner*/gnomon_task_owner AS o
        WHERE o.table_name = /*table*/'task' AND o.lease_guid = $1::uuid
    )
RETURNING t.id;

-- name: others
-- Local tasks that backends of others perform.
SELECT t."group", count(*) AS count FROM /*task*/task AS t
WHERE t.state IN ('TAKE', 'WORK') AND t.state = 'WORK' AND t.remote IS NULL
    AND NOT t.pid = ANY ($1::integer[])
GROUP BY t."group";

-- name: expire
-- Due rows beyond their `active` are not performed any more; those that repeat get their next row.
-- A row with a pause waits as long as it takes.
WITH mine AS (
    UPDATE /*task*/task AS t
    SET state = 'GONE', start = statement_timestamp(), stop = statement_timestamp(),
        error = 'ERROR:  task not active'
    WHERE t.state = 'PLAN' AND t.plan <= statement_timestamp()
        AND t.plan + t.active <= statement_timestamp() AND t.max >= 0
        AND EXISTS (
            SELECT FROM /*owner*/gnomon_task_owner AS o
            WHERE o.table_name = /*table*/'task' AND o.lease_guid = $1::uuid
        )
    RETURNING t.*, NULL::timestamptz AS next_cron
)
SELECT mine.id, nullif(btrim(mine.cron), '') AS cron,
    (extract(epoch FROM mine.stop) * 1000000)::bigint AS stop_us, /*include again*/1
FROM mine;

-- name: again_by_cron
SELECT /*again*/gnomon_task_again(/*task_name*/'task'::regclass, $1::bigint, $2::timestamptz);

-- name: terminate
SELECT pg_terminate_backend($1::integer);

-- name: listen_channel
-- The channel of the table's hint; no row if no trigger could be made.
SELECT 'gnomon_task_' || g.tgrelid FROM pg_trigger AS g
WHERE g.tgrelid = /*task_name*/'task'::regclass AND g.tgname = 'gnomon_task_hint';

-- name: listen
LISTEN /*channel*/gnomon_task
