-- What the owner of a table asks. These run on a connection of its own, whose planner is told to
-- prefer indexes: with fresh statistics or none, a table of any size must not be read as a whole.

-- name: lock
SELECT o.lease_guid, o.owner, o.process, o.beat,
    extract(epoch FROM clock_timestamp() - o.heartbeat_at)::double precision AS silent_s
FROM /*owner*/gnomon_task_owner AS o WHERE o.table_name = /*table*/'task';

-- name: acquire
-- Take the table if its lock is as it was seen ($4, $5), and free or silent by the database's clock.
INSERT INTO /*owner*/gnomon_task_owner AS o
    (table_name, lease_guid, owner, process, beat, heartbeat_at)
VALUES (/*table*/'task', $1::uuid, $2::text, $3::text, 0, clock_timestamp())
ON CONFLICT (table_name) DO UPDATE
SET lease_guid = excluded.lease_guid, owner = excluded.owner, process = excluded.process, beat = 0,
    heartbeat_at = excluded.heartbeat_at
WHERE o.lease_guid = excluded.lease_guid
    OR o.lease_guid IS NOT DISTINCT FROM $4::uuid AND o.beat = $5::bigint AND (
        o.lease_guid IS NULL
        OR o.heartbeat_at + $6::double precision * interval '1 second' <= clock_timestamp()
    )
RETURNING o.lease_guid;

-- name: beat
UPDATE /*owner*/gnomon_task_owner AS o
SET beat = o.beat + 1, heartbeat_at = clock_timestamp()
WHERE o.table_name = /*table*/'task' AND o.lease_guid = $1::uuid
RETURNING o.beat;

-- name: release
UPDATE /*owner*/gnomon_task_owner AS o SET lease_guid = NULL, process = NULL
WHERE o.table_name = /*table*/'task' AND o.lease_guid = $1::uuid;

-- name: poll_all
-- Groups with due rows, so many of them, from a place in the index on: a leap from group to group, not
-- a walk over the rows. A row without a group says where the next page begins.
WITH RECURSIVE leaps AS (
    (
        SELECT /*key t*/hashtextextended(t."group", 0) AS key, 1 AS number FROM /*task*/task AS t
        WHERE t.state = 'PLAN'
            AND /*key t*/hashtextextended(t."group", 0)
                > coalesce($1::bigint, -9223372036854775808)
        ORDER BY 1 LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT /*key t*/hashtextextended(t."group", 0) FROM /*task*/task AS t
        WHERE t.state = 'PLAN' AND /*key t*/hashtextextended(t."group", 0) > leaps.key
        ORDER BY 1 LIMIT 1
    ), leaps.number + 1
    FROM leaps WHERE leaps.key IS NOT NULL AND leaps.number < $2::integer
)
SELECT first."group", first.remote,
    CASE WHEN leaps.number >= $2::integer THEN leaps.key END AS rest
FROM leaps LEFT JOIN LATERAL (
    SELECT t."group", t.remote FROM /*task*/task AS t
    WHERE t.state = 'PLAN' AND /*key t*/hashtextextended(t."group", 0) = leaps.key
        AND t.plan <= statement_timestamp()
    ORDER BY t.plan LIMIT 1
) AS first ON true
WHERE leaps.key IS NOT NULL AND (first."group" IS NOT NULL OR leaps.number >= $2::integer);

-- name: poll_since
-- Groups with due rows that are new, or that have come due, since the last poll; so many rows are
-- looked at each way, and whether these were all is said.
WITH fresh AS (
    SELECT t."group", t.remote, t.plan, t.state FROM /*task*/task AS t
    WHERE t.id > $1::bigint ORDER BY t.id LIMIT $3::bigint
), ripe AS (
    SELECT t."group", t.remote FROM /*task*/task AS t
    WHERE t.state = 'PLAN' AND t.plan > $2::timestamptz AND t.plan <= statement_timestamp()
    ORDER BY t.plan LIMIT $3::bigint
), found AS (
    SELECT f."group", f.remote FROM fresh AS f
    WHERE f.state = 'PLAN' AND f.plan <= statement_timestamp()
    UNION
    SELECT r."group", r.remote FROM ripe AS r
), counted AS (
    SELECT (SELECT count(*) FROM fresh) >= $3::bigint
        OR (SELECT count(*) FROM ripe) >= $3::bigint AS is_cut
)
SELECT f."group", f.remote, c.is_cut FROM counted AS c LEFT JOIN found AS f ON true
WHERE f."group" IS NOT NULL OR c.is_cut;

-- name: poll_mark
-- The present, how far ids go, the next row that is to come due, and the next that expires, from a
-- place in the index on.
SELECT
    (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS now_us,
    coalesce((SELECT max(t.id) FROM /*task*/task AS t), 0) AS id,
    (extract(epoch FROM (
        SELECT min(t.plan) FROM /*task*/task AS t
        WHERE t.state = 'PLAN' AND t.plan > statement_timestamp()
            AND t.plan < '9999-01-01 00:00:00+00'::timestamptz
    )) * 1000000)::bigint AS next_plan_us,
    (extract(epoch FROM (
        SELECT greatest(/*expiry t*/t.plan, '1970-01-01'::timestamp) FROM /*task*/task AS t
        WHERE t.state = 'PLAN' AND t.max >= 0 AND /*expiry t*/t.plan < 'infinity'::timestamp
            AND /*expiry t*/t.plan >= coalesce($1::timestamp, '-infinity')
        ORDER BY /*expiry t*/t.plan LIMIT 1
    )) * 1000000)::bigint AS next_expiry_us;

-- name: window_few
-- The due rows of a group, if there are at most $5: found by their plan, put in order here. With them
-- what they will send, if that is short and they may follow another on its session. What has expired
-- is left to `expire`.
WITH due AS MATERIALIZED (
    /*include due_rows*/SELECT 1
    ORDER BY /*key t*/hashtextextended(t."group", 0), t.plan LIMIT $5::bigint + 1
)
/*include window_rows*/SELECT 1;

-- name: window_many
-- The first due rows of a group, along the index that has them in order; so many are looked at.
WITH due AS MATERIALIZED (
    /*include due_rows*/SELECT 1
    ORDER BY /*key t*/hashtextextended(t."group", 0), greatest(t.max, 0) DESC, t.id
    LIMIT $5::bigint
)
/*include window_rows*/SELECT 1;

-- name: due_rows fragment
SELECT t.id, t.max, t.count, t.live, /*include sent*/1, /*include awaited*/1,
    /*include lasting*/true AS is_lasting
FROM /*task*/task AS t
WHERE t.state = 'PLAN' AND /*key*/hashtextextended($1::text, 0)
        = /*key t*/hashtextextended(t."group", 0)
    AND t."group" = $1::text AND t.remote IS NOT DISTINCT FROM $2::text
    AND t.plan <= statement_timestamp()

-- name: window_rows fragment
SELECT d.id, d.max, d.count, extract(epoch FROM d.live)::double precision AS live_s, d.input,
    d.version, d.look, extract(epoch FROM d.expiry)::double precision AS expiry_s,
    d.cron, d.plan_us, c.due_count
FROM (SELECT count(*) AS due_count FROM due) AS c LEFT JOIN due AS d ON d.is_lasting
ORDER BY greatest(d.max, 0) DESC, d.id LIMIT $3::bigint

-- name: sent fragment
CASE
    WHEN (t.count > 0 OR t.live > interval '0') AND t.cron IS NULL
        AND octet_length(t.input) <= $4::integer
    THEN t.input
END AS input,
t.xmin AS version, /*look t*/hashtextextended(t.id, 0) AS look, /*expiry t*/t.plan AS expiry

-- name: awaited fragment
-- The `cron` of a row that nobody gave a plan: it waits for its first time, which is not known yet.
CASE WHEN t.plan = t.since THEN nullif(btrim(t.cron), '') END AS cron,
CASE WHEN t.plan = t.since THEN (extract(epoch FROM t.plan) * 1000000)::bigint END AS plan_us

-- name: lasting fragment
-- Whether a row may still be begun: one with a pause waits as long as it takes.
(t.max < 0 OR /*expiry t*/t.plan > statement_timestamp() AT TIME ZONE 'UTC')

-- name: plan_first
-- A row with a `cron` and no plan of its own is planned for its first time.
UPDATE /*task*/task AS t SET plan = $2::timestamptz
WHERE t.id = ANY (ARRAY(
    SELECT l.id FROM /*task*/task AS l
    WHERE l.id = $1::bigint AND l.state = 'PLAN' AND l.plan = l.since
        AND /*owned $3*/true
    FOR UPDATE SKIP LOCKED
));

-- name: mark_taken
-- Of all these statements none waits for a row that somebody has locked.
UPDATE /*task*/task AS t SET state = 'TAKE'
WHERE t.id = ANY (ARRAY(
    SELECT l.id FROM /*task*/task AS l
    WHERE l.id = ANY ($1::bigint[]) AND l.state = 'PLAN' AND l.plan <= clock_timestamp()
        AND (l.max < 0 OR /*expiry l*/l.plan > clock_timestamp() AT TIME ZONE 'UTC')
        AND /*owned $2*/true
    FOR UPDATE SKIP LOCKED
))
RETURNING t.id;

-- name: untake
UPDATE /*task*/task AS t SET state = 'PLAN', start = NULL, stop = NULL, pid = NULL
WHERE t.id = ANY (ARRAY(
    SELECT l.id FROM /*task*/task AS l
    WHERE l.id = ANY ($1::bigint[]) AND l.state IN ('TAKE', 'WORK')
        AND /*owned $2*/true
    FOR UPDATE SKIP LOCKED
));

-- name: busy_of
-- Which of these are taken still.
SELECT t.id FROM /*task*/task AS t
WHERE t.id = ANY ($1::bigint[]) AND t.state IN ('TAKE', 'WORK');

-- name: rescue
-- Rows that nobody works on go back; with $4 only these.
UPDATE /*task*/task AS u SET state = 'PLAN', start = NULL, stop = NULL, pid = NULL
WHERE u.id = ANY (ARRAY(
    SELECT t.id FROM /*task*/task AS t
    WHERE t.state IN ('TAKE', 'WORK') AND /*include left_alone*/true
        AND ($4::bigint[] IS NULL OR t.id = ANY ($4::bigint[]))
        AND /*owned $3*/true
    FOR UPDATE OF t SKIP LOCKED
))
RETURNING u.id;

-- name: stuck
SELECT t.id FROM /*task*/task AS t
WHERE t.state IN ('TAKE', 'WORK') AND /*include left_alone*/true;

-- name: left_alone fragment
-- Whether nobody works on a row: local WORK whose backend is gone; TAKE with $1; remote WORK with $2. A
-- backend is a session of this login's on this database that began before the task: numbers are
-- given again. One whose beginning we may not see is taken for alive.
CASE
    WHEN t.state = 'TAKE' THEN $1::boolean
    WHEN t.remote IS NOT NULL THEN $2::boolean
    ELSE NOT EXISTS (
        SELECT FROM pg_stat_activity AS a
        WHERE a.pid = t.pid AND a.pid <> pg_backend_pid() AND a.usename = session_user
            AND a.datname = current_database() AND coalesce(a.backend_start <= t.start, true)
    )
END

-- name: others
-- Local tasks that backends of others perform.
SELECT t."group", count(*) AS count FROM /*task*/task AS t
WHERE t.state IN ('TAKE', 'WORK') AND t.state = 'WORK' AND t.remote IS NULL
    AND NOT t.pid = ANY ($1::integer[]) AND NOT t.id = ANY ($2::bigint[])
GROUP BY t."group";

-- name: expire
-- So many due rows beyond their `active`, from a place in the index on and but for some, are not
-- performed any more; those that repeat get their next row. Those that somebody has locked wait for
-- him, and those with a `cron` for `expire_these`.
WITH mine AS (
    UPDATE /*task*/task AS t
    SET state = 'GONE', start = statement_timestamp(), stop = statement_timestamp(),
        error = 'ERROR:  task not active'
    WHERE t.id = ANY (ARRAY(
        SELECT l.id FROM /*task*/task AS l
        WHERE l.state = 'PLAN' AND l.max >= 0
            AND /*expiry l*/l.plan <= statement_timestamp() AT TIME ZONE 'UTC'
            AND /*expiry l*/l.plan >= coalesce($2::timestamp, '-infinity')
            AND NOT l.id = ANY ($3::bigint[]) AND coalesce(btrim(l.cron), '') = ''
            AND /*owned $1*/true
        ORDER BY /*expiry l*/l.plan LIMIT $4::bigint
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING t.*, NULL::timestamptz AS next_cron, false AS is_last
)
SELECT mine.id, (max(/*expiry mine*/mine.plan) OVER ())::text AS place, /*include again*/1 FROM mine;

-- name: expirable
-- The same rows and those with a `cron`, to look at.
SELECT t.id, nullif(btrim(t.cron), '') AS cron, t.plan = t.since AS is_awaited,
    (extract(epoch FROM CASE WHEN isfinite(t.plan) THEN t.plan END) * 1000000)::bigint AS plan_us,
    (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS now_us
FROM /*task*/task AS t
WHERE t.state = 'PLAN' AND t.max >= 0
    AND /*expiry t*/t.plan <= statement_timestamp() AT TIME ZONE 'UTC'
    AND /*expiry t*/t.plan >= coalesce($1::timestamp, '-infinity')
    AND NOT t.id = ANY ($2::bigint[])
ORDER BY /*expiry t*/t.plan LIMIT $3::bigint
FOR UPDATE SKIP LOCKED;

-- name: expire_these
-- Some of them, with the next time of each that has a `cron`.
WITH mine AS (
    UPDATE /*task*/task AS t
    SET state = 'GONE', start = statement_timestamp(), stop = statement_timestamp(),
        error = 'ERROR:  task not active'
    WHERE t.id = ANY (ARRAY(
        SELECT l.id FROM /*task*/task AS l
        WHERE l.id = ANY ($2::bigint[]) AND l.state = 'PLAN' AND l.max >= 0
            AND /*expiry l*/l.plan <= statement_timestamp() AT TIME ZONE 'UTC'
            AND /*owned $1*/true
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING t.*,
        CASE
            WHEN btrim(t.cron) <> '' THEN (
                SELECT g.at FROM unnest($2::bigint[], $3::timestamptz[]) AS g (id, at)
                WHERE g.id = t.id
            )
        END AS next_cron, false AS is_last
)
SELECT mine.id, /*include again*/1 FROM mine;

-- name: terminate
SELECT pg_terminate_backend($1::integer);

-- name: listen_channel
-- The channel of the table's hint; no row if no trigger could be made.
SELECT 'gnomon_task_' || g.tgrelid AS channel FROM pg_trigger AS g
WHERE g.tgrelid = /*task_name*/'task'::regclass AND g.tgname = 'gnomon_task_hint';

-- name: listen
LISTEN /*channel*/gnomon_task
