-- What the owner of a shard does. See actions.sql about `one-shard:`.
--
-- Plans must not depend on statistics: a queue that was empty when it was vacuumed is one row to the
-- planner, and then any order of joining looks as good as another, such as reading the whole table
-- for every element of an array. So nothing here leaves a choice: what is written is found by
-- `= ANY (array)` or by ctid, what is joined stands in a LATERAL that its LIMIT keeps where it is.
-- What belongs to a guid is then found in arrays sorted by guid: width_bucket is a binary search.

-- name: move many-shards
-- Take idle rows off the incoming queues, oldest first, and put those of current generations into the
-- processing queues. The DELETE is the fence: who deletes a row is the one who moves it. A row that
-- was begun where it is (move_and_begin) stays there: a look by ctid may follow it to its new
-- version, so that it is idle is asked again.
-- Gives per shard still held (queue NULL): the last created_at and how many were taken; and per
-- lane that got rows: the earliest time and how many.
-- A helper (lease guid NULL) takes rows older than a second where nobody holds the shard, or the
-- owner is silent, from the mark that the owner saved.
-- $1 shards, $2 lease guids, $3 marks, $4 limit per shard, $5 how far marks lag behind, $6 silent
WITH held AS (
    SELECT l.shard_id,
        least(
            CASE WHEN u.lease_guid IS NULL THEN coalesce(l.incoming_mark, '-infinity') ELSE u.mark END,
            statement_timestamp() - $5::interval
        ) AS mark,
        CASE WHEN u.lease_guid IS NULL THEN statement_timestamp() - interval '1 second'
            ELSE 'infinity' END AS until
    FROM unnest($1::int[], $2::uuid[], $3::timestamptz[]) AS u (shard_id, lease_guid, mark)
    JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id AND CASE
        WHEN u.lease_guid IS NOT NULL THEN l.lease_guid = u.lease_guid
        ELSE l.lease_guid IS NULL OR l.heartbeat_at < statement_timestamp() - $6::interval
    END
), taken AS (
    DELETE FROM /*schema*/incoming_queue AS i
    USING held AS h
    CROSS JOIN LATERAL (
        SELECT n.ctid AS row_id
        FROM /*schema*/incoming_queue AS n
        WHERE n.shard_id = h.shard_id AND n.created_at >= h.mark AND n.created_at <= h.until
          AND n.attempt_id IS NULL
        ORDER BY n.created_at, n.guid
        LIMIT $4::int
    ) AS oldest
    WHERE i.ctid = oldest.row_id AND i.attempt_id IS NULL
    RETURNING i.shard_id, i.created_at, i.guid, i.queue, i.priority, i.scheduled_at
), moved AS (
    INSERT INTO /*schema*/processing_queue
        (shard_id, guid, queue, priority, scheduled_at, attempts, running, swept)
    SELECT t.shard_id, t.guid, t.queue, t.priority, t.scheduled_at, a.attempts, false, false
    FROM taken AS t
    CROSS JOIN LATERAL (
        SELECT s.attempts FROM /*schema*/scheduled_action AS s WHERE s.guid = t.guid LIMIT 1
    ) AS a
    ON CONFLICT (guid, shard_id) DO NOTHING
    RETURNING shard_id, queue, priority, scheduled_at
)
SELECT h.shard_id, NULL::text AS queue, NULL::int AS priority, s.last_at AS moment,
       coalesce(s.rows, 0) AS count, statement_timestamp() AS now
FROM held AS h
LEFT JOIN (
    SELECT t.shard_id, max(t.created_at) AS last_at, count(*) AS rows
    FROM taken AS t GROUP BY t.shard_id
) AS s ON s.shard_id = h.shard_id
UNION ALL
SELECT m.shard_id, m.queue, m.priority, min(m.scheduled_at), count(*), statement_timestamp()
FROM moved AS m
GROUP BY m.shard_id, m.queue, m.priority;

-- name: move_and_begin many-shards
-- Begin in place what is due on arrival and finds room: its incoming row gets the attempt and the
-- reservation, which no index knows of, and stays until the end (ADR 0020). First attempts only, so
-- that no counter need be told. What is not begun is moved: it is not due, has no room, was attempted
-- before, or its action is being changed and cannot be held FOR SHARE. Gives three kinds of rows: one
-- for each attempt begun (with an id); one for each shard looked at (without a queue): the last
-- created_at and how many were taken; one for each lane that got rows: the earliest time, how many.
-- Where there is room for all that is looked at, nobody counts it: see texts.py. $6 is named besides,
-- so that its type is known there, too.
-- $1 shards, $2 lease guids, $3 marks, $4 limit per shard, $5 queues, $6 room in each,
-- $7 first half of the attempt ids, $8 owner, $9 grace, $10 window, $11 how far marks lag behind,
-- $12 only what is due of the newest rows and may find room, not the oldest ones whatever they are
WITH held AS (
    SELECT l.shard_id, least(u.mark, statement_timestamp() - $11::interval) AS mark
    FROM unnest($1::int[], $2::uuid[], $3::timestamptz[]) AS u (shard_id, lease_guid, mark)
    JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id AND l.lease_guid = u.lease_guid
), seen AS (
    SELECT oldest.*
    FROM held AS h
    CROSS JOIN LATERAL (
        SELECT n.ctid AS row_id, n.shard_id, n.created_at, n.guid, n.queue, n.scheduled_at
        FROM /*schema*/incoming_queue AS n
        WHERE n.shard_id = h.shard_id AND n.created_at >= h.mark AND n.attempt_id IS NULL
          AND NOT $12::boolean
        ORDER BY n.created_at, n.guid
        LIMIT $4::int
    ) AS oldest
    /*newest*/
    UNION ALL
    (SELECT newest.*
    FROM held AS h
    CROSS JOIN LATERAL (
        SELECT n.ctid AS row_id, n.shard_id, n.created_at, n.guid, n.queue, n.scheduled_at
        FROM /*schema*/incoming_queue AS n
        WHERE n.shard_id = h.shard_id AND n.created_at >= h.mark AND n.attempt_id IS NULL
          AND $12::boolean
        ORDER BY n.created_at DESC, n.guid DESC
        LIMIT $4::int
    ) AS newest
    WHERE newest.scheduled_at <= statement_timestamp() AND newest.queue = ANY ($5::text[])
    LIMIT (SELECT sum(r.room) FROM unnest($6::int[]) AS r (room)))
    /*end*/
), known AS MATERIALIZED (
    SELECT
        t.row_id, t.shard_id, t.created_at, a.id, a.spec, a.timeout_us, a.occurrence_no,
        a.occurrence_at, a.series,
        a.id IS NOT NULL AND t.scheduled_at <= statement_timestamp()
            AND t.queue = ANY ($5::text[]) AND $6::int[] IS NOT NULL
            /*crowded*/
            AND row_number() OVER (PARTITION BY t.queue ORDER BY t.scheduled_at)
                <= coalesce(($6::int[])[array_position($5::text[], t.queue)], 0)
            /*end*/
            AS begins
    FROM seen AS t
    LEFT JOIN LATERAL (
        SELECT s.*
        FROM /*schema*/scheduled_action AS s
        WHERE s.guid = t.guid AND s.state = 'active' AND s.attempts = 0
          AND (s.expires_at IS NULL OR s.expires_at > statement_timestamp())
        LIMIT 1
        FOR SHARE SKIP LOCKED
    ) AS a ON true
), begun AS (
    UPDATE /*schema*/incoming_queue AS i
    SET attempt_id = ($7::text || right(i.guid::text, 17))::uuid, began_at = statement_timestamp(),
        deadline_at = statement_timestamp() + k.timeout_us * interval '1 microsecond',
        reserved_until = statement_timestamp()
            + least(k.timeout_us * interval '1 microsecond', $10::interval) + $9::interval,
        owner = $8::text
    FROM known AS k
    WHERE i.ctid = k.row_id AND k.begins AND i.attempt_id IS NULL
    RETURNING
        i.shard_id, k.id, i.guid, i.attempt_id, k.spec, i.scheduled_at, k.occurrence_no,
        nullif(k.occurrence_at, i.scheduled_at) AS occurrence_at, k.series
), taken AS (
    DELETE FROM /*schema*/incoming_queue AS i
    USING known AS k
    WHERE i.ctid = k.row_id AND NOT k.begins AND i.attempt_id IS NULL
    RETURNING i.shard_id, i.guid, i.queue, i.priority, i.scheduled_at, k.id IS NOT NULL AS is_first
), moved AS (
    INSERT INTO /*schema*/processing_queue
        (shard_id, guid, queue, priority, scheduled_at, attempts, running, swept)
    SELECT t.shard_id, t.guid, t.queue, t.priority, t.scheduled_at, a.attempts, false, false
    FROM taken AS t
    CROSS JOIN LATERAL (
        SELECT 0 AS attempts WHERE t.is_first
        UNION ALL
        SELECT s.attempts FROM /*schema*/scheduled_action AS s WHERE s.guid = t.guid AND NOT t.is_first
        LIMIT 1
    ) AS a
    ON CONFLICT (guid, shard_id) DO NOTHING
    RETURNING shard_id, queue, priority, scheduled_at
)
SELECT
    b.shard_id, b.id, b.guid, b.attempt_id, b.spec, b.scheduled_at AS moment, b.occurrence_no,
    b.occurrence_at, b.series, NULL::text AS queue, NULL::int AS priority, NULL::bigint AS count,
    NULL::timestamptz AS now
FROM begun AS b
UNION ALL
SELECT
    k.shard_id, NULL, NULL, NULL, NULL, max(k.created_at), NULL, NULL, NULL, NULL, NULL, count(*),
    statement_timestamp()
FROM known AS k
GROUP BY k.shard_id
UNION ALL
SELECT
    m.shard_id, NULL, NULL, NULL, NULL, min(m.scheduled_at), NULL, NULL, NULL, m.queue, m.priority,
    count(*), statement_timestamp()
FROM moved AS m
GROUP BY m.shard_id, m.queue, m.priority;

-- name: move_and_begin_part shard-local
-- move_and_begin where an INSERT has to stand alone: what is due on arrival and finds room is begun in
-- place, the other rows are taken, and move_put puts those of current generations where they belong.
-- Gives three kinds of rows: one for each attempt begun (with an id); one for each shard looked at
-- (without a guid): the last created_at and how many rows; one for each row taken, with the attempts
-- of its action (NULL: the generation is gone).
-- $1 shards, $2 lease guids, $3 marks, $4 limit per shard, $5 queues, $6 room in each,
-- $7 first half of the attempt ids, $8 owner, $9 grace, $10 window, $11 how far marks lag behind,
-- $12 only what is due of the newest rows and may find room, not the oldest ones whatever they are
WITH held AS MATERIALIZED (
    SELECT l.shard_id, least(u.mark, statement_timestamp() - $11::interval) AS mark
    FROM unnest($1::int[], $2::uuid[], $3::timestamptz[]) AS u (shard_id, lease_guid, mark)
    JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id AND l.lease_guid = u.lease_guid
    WHERE true /*one-shard: AND l.shard_id = $13*/
), seen AS (
    SELECT oldest.*
    FROM held AS h
    CROSS JOIN LATERAL (
        SELECT
            n.ctid AS row_id, n.shard_id, n.created_at, n.guid, n.queue, n.priority, n.scheduled_at
        FROM /*schema*/incoming_queue AS n
        WHERE n.shard_id = h.shard_id AND n.created_at >= h.mark AND n.attempt_id IS NULL
          AND NOT $12::boolean /*one-shard: AND n.shard_id = $13*/
        ORDER BY n.created_at, n.guid
        LIMIT $4::int
    ) AS oldest
    /*newest*/
    UNION ALL
    (SELECT newest.*
    FROM held AS h
    CROSS JOIN LATERAL (
        SELECT
            n.ctid AS row_id, n.shard_id, n.created_at, n.guid, n.queue, n.priority, n.scheduled_at
        FROM /*schema*/incoming_queue AS n
        WHERE n.shard_id = h.shard_id AND n.created_at >= h.mark AND n.attempt_id IS NULL
          AND $12::boolean /*one-shard: AND n.shard_id = $13*/
        ORDER BY n.created_at DESC, n.guid DESC
        LIMIT $4::int
    ) AS newest
    WHERE newest.scheduled_at <= statement_timestamp() AND newest.queue = ANY ($5::text[])
    LIMIT (SELECT sum(r.room) FROM unnest($6::int[]) AS r (room)))
    /*end*/
), known AS MATERIALIZED (
    SELECT
        t.row_id, t.shard_id, t.created_at, t.guid, t.queue, t.priority, t.scheduled_at, g.attempts,
        a.id, a.spec, a.occurrence_no, a.occurrence_at, a.series,
        statement_timestamp() AS began_at,
        statement_timestamp() + a.timeout_us * interval '1 microsecond' AS deadline_at,
        statement_timestamp() + least(a.timeout_us * interval '1 microsecond', $10::interval)
            + $9::interval AS reserved_until,
        a.id IS NOT NULL AND t.scheduled_at <= statement_timestamp()
            AND row_number() OVER (PARTITION BY t.queue ORDER BY t.scheduled_at)
                <= coalesce(($6::int[])[array_position($5::text[], t.queue)], 0) AS begins
    FROM seen AS t
    LEFT JOIN LATERAL (
        SELECT s.*
        FROM /*schema*/scheduled_action AS s
        WHERE s.guid = t.guid AND s.state = 'active' AND s.attempts = 0
          AND (s.expires_at IS NULL OR s.expires_at > statement_timestamp())
          /*one-shard: AND s.shard_id = $13*/
        LIMIT 1
        FOR SHARE SKIP LOCKED
    ) AS a ON true
    LEFT JOIN LATERAL (
        SELECT a.attempts WHERE a.id IS NOT NULL
        UNION ALL
        SELECT s.attempts FROM /*schema*/scheduled_action AS s
        WHERE s.guid = t.guid AND a.id IS NULL /*one-shard: AND s.shard_id = $13*/
        LIMIT 1
    ) AS g ON true
), begun AS (
    UPDATE /*schema*/incoming_queue AS i
    SET attempt_id = ($7::text || right(i.guid::text, 17))::uuid, began_at = k.began_at,
        deadline_at = k.deadline_at, reserved_until = k.reserved_until, owner = $8::text
    FROM known AS k
    WHERE i.ctid = k.row_id AND k.begins AND i.attempt_id IS NULL
      /*one-shard: AND i.shard_id = $13*/
    RETURNING
        i.shard_id, k.id, i.guid, i.attempt_id, k.spec, i.scheduled_at, k.occurrence_no,
        nullif(k.occurrence_at, i.scheduled_at) AS occurrence_at, k.series
), taken AS (
    DELETE FROM /*schema*/incoming_queue AS i
    USING known AS k
    WHERE i.ctid = k.row_id AND NOT k.begins AND i.attempt_id IS NULL
      /*one-shard: AND i.shard_id = $13*/
    RETURNING i.shard_id, i.guid, i.queue, i.priority, i.scheduled_at, k.attempts
)
SELECT
    b.shard_id, b.id, b.guid, b.attempt_id, b.spec, b.scheduled_at AS moment, b.occurrence_no,
    b.occurrence_at, b.series, NULL::text AS queue, NULL::smallint AS priority,
    NULL::int AS attempts, NULL::bigint AS count, NULL::timestamptz AS now
FROM begun AS b
UNION ALL
SELECT
    k.shard_id, NULL, NULL, NULL, NULL, max(k.created_at), NULL, NULL, NULL, NULL, NULL, NULL,
    count(*), statement_timestamp()
FROM known AS k
GROUP BY k.shard_id
UNION ALL
SELECT
    t.shard_id, NULL, t.guid, NULL, NULL, t.scheduled_at, NULL, NULL, NULL, t.queue, t.priority,
    t.attempts, NULL, NULL
FROM taken AS t;

-- name: is_mixed shard-local
-- Two kinds of idle incoming rows, if there are as many among the oldest of some shards.
-- $1 shards, $2 marks, $3 rows to look at in a shard, $4 how far marks lag behind
SELECT DISTINCT i.queue, i.priority
FROM unnest($1::int[], $2::timestamptz[]) AS u (shard_id, mark)
CROSS JOIN LATERAL (
    SELECT n.queue, n.priority
    FROM /*schema*/incoming_queue AS n
    WHERE n.shard_id = u.shard_id
      AND n.created_at >= least(u.mark, statement_timestamp() - $4::interval)
      AND n.attempt_id IS NULL /*one-shard: AND n.shard_id = $5*/
    ORDER BY n.created_at, n.guid
    LIMIT $3::int
) AS i
LIMIT 2;

-- name: lock_begun shard-local
-- Rows of current generations that were begun in place, found by their actions and held for
-- move_begun. What somebody else holds is not waited for.
-- $1 guids
SELECT i.row_id, i.shard_id, i.created_at, i.guid
FROM unnest($1::uuid[]) AS u (guid)
CROSS JOIN LATERAL (
    SELECT s.shard_id, s.updated_at FROM /*schema*/scheduled_action AS s
    WHERE s.guid = u.guid /*one-shard: AND s.shard_id = $2*/
    LIMIT 1
) AS a
CROSS JOIN LATERAL (
    SELECT n.ctid AS row_id, n.shard_id, n.created_at, n.guid
    FROM /*schema*/incoming_queue AS n
    WHERE n.shard_id = a.shard_id AND n.created_at = a.updated_at AND n.guid = u.guid
      AND n.attempt_id IS NOT NULL /*one-shard: AND n.shard_id = $2*/
    LIMIT 1
    FOR UPDATE SKIP LOCKED
) AS i;

-- name: lock_begun_in shard-local
-- The same for what runs in some shards with a reservation up to a moment, begun by certain owners
-- (NULL: by any), whatever its generation. What runs in place is at the head of its shard, for idle
-- rows are begun or moved in order: so a bounded look finds all of it by and by.
-- $1 shards, $2 owners, $3 reserved until (NULL: the present), $4 rows to look at in a shard
SELECT free.row_id, free.shard_id, free.created_at, free.guid
FROM unnest($1::int[]) AS h (shard_id)
CROSS JOIN LATERAL (
    SELECT n.ctid AS row_id, n.attempt_id, n.reserved_until, n.owner
    FROM /*schema*/incoming_queue AS n
    WHERE n.shard_id = h.shard_id /*one-shard: AND n.shard_id = $5*/
    ORDER BY n.created_at, n.guid
    LIMIT $4::int
) AS i
CROSS JOIN LATERAL (
    SELECT n.ctid AS row_id, n.shard_id, n.created_at, n.guid
    FROM /*schema*/incoming_queue AS n
    WHERE n.ctid = i.row_id AND n.attempt_id = i.attempt_id /*one-shard: AND n.shard_id = $5*/
    LIMIT 1
    FOR UPDATE SKIP LOCKED
) AS free
WHERE i.reserved_until <= coalesce($3::timestamptz, statement_timestamp())
  AND ($2::text[] IS NULL OR i.owner = ANY ($2::text[]));

-- name: move_begun many-shards
-- Rows that were begun in place, and are held, go to the processing queue, attempt and all: before
-- anybody does more with such an attempt than record that it succeeded.
-- $1 row ids
WITH taken AS (
    DELETE FROM /*schema*/incoming_queue AS i WHERE i.ctid = ANY ($1::tid[]) RETURNING i.*
)
INSERT INTO /*schema*/processing_queue (
    shard_id, guid, queue, priority, scheduled_at, attempts, running, swept, attempt_id, began_at,
    deadline_at, owner
)
SELECT
    t.shard_id, t.guid, t.queue, t.priority, t.reserved_until, 1, true, false, t.attempt_id,
    t.began_at, t.deadline_at, t.owner
FROM taken AS t
ON CONFLICT (guid, shard_id) DO NOTHING;

-- name: move_begun_put shard-local
-- The same where an INSERT has to stand alone; rows are named by their keys, and held.
-- $1 shards, $2 created_at, $3 guids
INSERT INTO /*schema*/processing_queue (
    shard_id, guid, queue, priority, scheduled_at, attempts, running, swept, attempt_id, began_at,
    deadline_at, owner
)
SELECT
    i.shard_id, i.guid, i.queue, i.priority, i.reserved_until, 1, true, false, i.attempt_id,
    i.began_at, i.deadline_at, i.owner
FROM unnest($1::int[], $2::timestamptz[], $3::uuid[]) AS u (shard_id, created_at, guid)
JOIN /*schema*/incoming_queue AS i
    ON i.shard_id = u.shard_id AND i.created_at = u.created_at AND i.guid = u.guid
WHERE i.attempt_id IS NOT NULL /*one-shard: AND i.shard_id = $4*/
ON CONFLICT (guid, shard_id) DO NOTHING;

-- name: move_begun_drop shard-local
-- And then they go.
-- $1 shards, $2 created_at, $3 guids
DELETE FROM /*schema*/incoming_queue AS i
USING unnest($1::int[], $2::timestamptz[], $3::uuid[]) AS u (shard_id, created_at, guid)
WHERE i.shard_id = u.shard_id AND i.created_at = u.created_at AND i.guid = u.guid
  AND i.attempt_id IS NOT NULL /*one-shard: AND i.shard_id = $4*/;

-- name: move_take shard-local
-- First half of a move where an INSERT has to stand alone. First one row for each shard that is held
-- (without a guid), then what was taken, and the attempts of its action (NULL: the generation is
-- gone, the row is dropped). Who may take what, and why, is as in `move`.
-- $1 shards, $2 lease guids (NULL: helper), $3 marks, $4 limit per shard, $5 how far marks lag behind,
-- $6 silent
WITH held AS MATERIALIZED (
    SELECT l.shard_id,
        least(
            CASE WHEN u.lease_guid IS NULL THEN coalesce(l.incoming_mark, '-infinity') ELSE u.mark END,
            statement_timestamp() - $5::interval
        ) AS mark,
        CASE WHEN u.lease_guid IS NULL THEN statement_timestamp() - interval '1 second'
            ELSE 'infinity' END AS until
    FROM unnest($1::int[], $2::uuid[], $3::timestamptz[]) AS u (shard_id, lease_guid, mark)
    JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id AND CASE
        WHEN u.lease_guid IS NOT NULL THEN l.lease_guid = u.lease_guid
        ELSE l.lease_guid IS NULL OR l.heartbeat_at < statement_timestamp() - $6::interval
    END
    WHERE true /*one-shard: AND l.shard_id = $7*/
), taken AS (
    DELETE FROM /*schema*/incoming_queue AS i
    USING held AS h
    CROSS JOIN LATERAL (
        SELECT n.ctid AS row_id
        FROM /*schema*/incoming_queue AS n
        WHERE n.shard_id = h.shard_id AND n.created_at >= h.mark AND n.created_at <= h.until
          AND n.attempt_id IS NULL /*one-shard: AND n.shard_id = $7*/
        ORDER BY n.created_at, n.guid
        LIMIT $4::int
    ) AS oldest
    WHERE i.ctid = oldest.row_id AND i.attempt_id IS NULL
      /*one-shard: AND i.shard_id = $7*/
    RETURNING i.shard_id, i.created_at, i.guid, i.queue, i.priority, i.scheduled_at
)
SELECT
    h.shard_id, NULL::uuid AS guid, NULL::text AS queue, NULL::smallint AS priority,
    NULL::timestamptz AS scheduled_at, NULL::int AS attempts, NULL::timestamptz AS created_at,
    statement_timestamp() AS now
FROM held AS h
UNION ALL
SELECT t.shard_id, t.guid, t.queue, t.priority, t.scheduled_at, a.attempts, t.created_at, NULL
FROM taken AS t
LEFT JOIN LATERAL (
    SELECT s.attempts
    FROM /*schema*/scheduled_action AS s
    WHERE s.guid = t.guid /*one-shard: AND s.shard_id = $7*/
    LIMIT 1
) AS a ON true;

-- name: move_put shard-local
-- Second half of a move.
-- $1 shards, $2 guids, $3 queues, $4 priorities, $5 scheduled_at, $6 attempts
INSERT INTO /*schema*/processing_queue
    (shard_id, guid, queue, priority, scheduled_at, attempts, running, swept)
SELECT l.shard_id, u.guid, u.queue, u.priority, u.scheduled_at, u.attempts, false, false
FROM unnest($1::int[], $2::uuid[], $3::text[], $4::smallint[], $5::timestamptz[], $6::int[])
    AS u (shard_id, guid, queue, priority, scheduled_at, attempts)
JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id
WHERE true /*one-shard: AND l.shard_id = $7*/
ON CONFLICT (guid, shard_id) DO NOTHING
RETURNING guid;

-- name: begin shard-local
-- Begin due rows of many lanes. The actions are held FOR SHARE, which orders this against replace,
-- delete and pause: a row whose action is being changed is left for later, and one whose action has
-- just been changed drops out when it is looked at again. Nothing waits for a lock here, and no more
-- than $14 rows of a lane are looked at in vain: what expired, is held by others or was left behind
-- may stand there by the million. Who finds a lane's head blocked asks for its newest rows ($13).
-- The result is in the order of the demands, then of time; columns of `Decoder.begun_of`.
-- $1 shards, $2 queues, $3 priorities, $4 needs, $5 lease guids (NULL: helper), $6 limits, $7 since,
-- $8 first half of the attempt ids, $9 owner, $10 grace, $11 window, $12 silent, $13 newest first,
-- $14 looked at in vain, $15 as guests, who do not mind the owner, $16 also what is due until then:
-- it begins at its time
WITH picked AS (
    SELECT due.*
    FROM unnest(
        $1::int[], $2::text[], $3::smallint[], $4::text[], $5::uuid[], $6::int[], $7::timestamptz[],
        $14::int[], $15::boolean[]
    ) AS d (shard_id, queue, priority, need, lease_guid, rows_max, since, looked_at, is_guest)
    CROSS JOIN LATERAL (
        SELECT 1 FROM /*schema*/shard_lock AS l
        WHERE l.shard_id = d.shard_id AND CASE
            WHEN d.lease_guid IS NOT NULL THEN l.lease_guid = d.lease_guid
            ELSE d.is_guest OR l.lease_guid IS NULL OR l.heartbeat_at < statement_timestamp() - $12::interval
        END /*one-shard: AND l.shard_id = $17*/
        LIMIT 1
    ) AS held
    CROSS JOIN LATERAL (
        SELECT
            head.row_id, head.due_at, a.id, a.spec, a.timeout_us,
            a.occurrence_no, a.occurrence_at, a.expires_at, a.succeeded, a.failed, a.interrupted,
            a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures,
            a.last_attempt, a.series, greatest(statement_timestamp(), head.due_at) AS began_at,
            greatest(statement_timestamp(), head.due_at)
                + a.timeout_us * interval '1 microsecond' AS deadline_at,
            greatest(statement_timestamp(), head.due_at)
                + least(a.timeout_us * interval '1 microsecond', $11::interval)
                + $10::interval AS reserved_until
        FROM (
            (SELECT q.ctid AS row_id, q.guid, q.scheduled_at AS due_at
            FROM /*schema*/processing_queue AS q
            WHERE q.shard_id = d.shard_id AND q.queue = d.queue AND q.priority = d.priority
              AND q.need = d.need AND q.scheduled_at >= coalesce(d.since, '-infinity')
              AND q.scheduled_at <= greatest(statement_timestamp(), $16::timestamptz)
                  - CASE WHEN d.lease_guid IS NULL AND NOT d.is_guest THEN interval '1 second' ELSE interval '0' END
              AND NOT q.running AND NOT $13::boolean /*one-shard: AND q.shard_id = $17*/
            ORDER BY q.scheduled_at
            LIMIT d.rows_max + d.looked_at)
            /*newest*/
            UNION ALL
            (SELECT q.ctid, q.guid, q.scheduled_at
            FROM /*schema*/processing_queue AS q
            WHERE q.shard_id = d.shard_id AND q.queue = d.queue AND q.priority = d.priority
              AND q.need = d.need AND q.scheduled_at <= statement_timestamp()
                  - CASE WHEN d.lease_guid IS NULL AND NOT d.is_guest THEN interval '1 second' ELSE interval '0' END
              AND NOT q.running AND $13::boolean /*one-shard: AND q.shard_id = $17*/
            ORDER BY q.scheduled_at DESC
            LIMIT d.rows_max + d.looked_at)
            /*end*/
        ) AS head
        CROSS JOIN LATERAL (
            SELECT s.*
            FROM /*schema*/scheduled_action AS s
            WHERE s.guid = head.guid AND s.state = 'active' /*one-shard: AND s.shard_id = $17*/
              AND (s.expires_at IS NULL OR s.expires_at > greatest(statement_timestamp(), head.due_at))
            LIMIT 1
            FOR SHARE SKIP LOCKED
        ) AS a
        CROSS JOIN LATERAL (
            SELECT 1 FROM /*schema*/processing_queue AS q
            WHERE q.ctid = head.row_id AND NOT q.running AND q.scheduled_at = head.due_at
              /*one-shard: AND q.shard_id = $17*/
            LIMIT 1
            FOR UPDATE SKIP LOCKED
        ) AS held
        LIMIT d.rows_max
    ) AS due
)
UPDATE /*schema*/processing_queue AS q
SET attempt_id = ($8::text || right(q.guid::text, 17))::uuid, attempts = q.attempts + 1,
    running = true, swept = false, began_at = p.began_at, deadline_at = p.deadline_at,
    scheduled_at = p.reserved_until, owner = $9::text
FROM picked AS p
WHERE q.ctid = p.row_id /*one-shard: AND q.shard_id = $17*/
RETURNING
    q.shard_id, p.id, q.guid, q.attempt_id, p.spec, p.due_at, q.began_at, q.deadline_at,
    q.attempts, p.occurrence_no, p.occurrence_at, p.expires_at, p.succeeded, p.failed,
    p.interrupted, p.consecutive_failures, p.consecutive_interruptions, p.occurrence_failures,
    p.last_attempt, q.queue, q.priority, p.series, q.need;

-- name: begin_lane shard-local
-- The same for one lane.
-- $1 shard, $2 queue, $3 priority, $4 need, $5 lease guid (NULL: helper), $6 limit, $7 since,
-- $8 first half of the attempt ids, $9 owner, $10 grace, $11 window, $12 silent, $13 newest first,
-- $14 looked at in vain, $15 as a guest, $16 also what is due until then
WITH picked AS (
    SELECT
        head.row_id, head.due_at, a.id, a.spec, a.timeout_us,
        a.occurrence_no, a.occurrence_at, a.expires_at, a.succeeded, a.failed, a.interrupted,
        a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures,
        a.last_attempt, a.series, greatest(statement_timestamp(), head.due_at) AS began_at,
        greatest(statement_timestamp(), head.due_at)
            + a.timeout_us * interval '1 microsecond' AS deadline_at,
        greatest(statement_timestamp(), head.due_at)
            + least(a.timeout_us * interval '1 microsecond', $11::interval)
            + $10::interval AS reserved_until
    FROM (
        (SELECT q.ctid AS row_id, q.guid, q.scheduled_at AS due_at
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = $1::int AND q.queue = $2::text AND q.priority = $3::smallint
          AND q.need = $4::text AND q.scheduled_at >= coalesce($7::timestamptz, '-infinity')
          AND q.scheduled_at <= greatest(statement_timestamp(), $16::timestamptz)
              - CASE WHEN $5::uuid IS NULL AND NOT $15::boolean THEN interval '1 second' ELSE interval '0' END
          AND NOT q.running AND NOT $13::boolean
        ORDER BY q.scheduled_at
        LIMIT $6::int + $14::int)
        /*newest*/
        UNION ALL
        (SELECT q.ctid, q.guid, q.scheduled_at
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = $1::int AND q.queue = $2::text AND q.priority = $3::smallint
          AND q.need = $4::text AND q.scheduled_at <= statement_timestamp()
              - CASE WHEN $5::uuid IS NULL AND NOT $15::boolean THEN interval '1 second' ELSE interval '0' END
          AND NOT q.running AND $13::boolean
        ORDER BY q.scheduled_at DESC
        LIMIT $6::int + $14::int)
        /*end*/
    ) AS head
    CROSS JOIN LATERAL (
        SELECT s.*
        FROM /*schema*/scheduled_action AS s
        WHERE s.guid = head.guid AND s.state = 'active' /*one-shard: AND s.shard_id = $1*/
          AND (s.expires_at IS NULL OR s.expires_at > greatest(statement_timestamp(), head.due_at))
        LIMIT 1
        FOR SHARE SKIP LOCKED
    ) AS a
    CROSS JOIN LATERAL (
        SELECT 1 FROM /*schema*/processing_queue AS q
        WHERE q.ctid = head.row_id AND NOT q.running AND q.scheduled_at = head.due_at
          /*one-shard: AND q.shard_id = $1*/
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS held
    WHERE EXISTS (
        SELECT 1 FROM /*schema*/shard_lock AS l
        WHERE l.shard_id = $1::int AND CASE
            WHEN $5::uuid IS NOT NULL THEN l.lease_guid = $5::uuid
            ELSE $15::boolean OR l.lease_guid IS NULL OR l.heartbeat_at < statement_timestamp() - $12::interval
        END
        OFFSET 0
    )
    LIMIT $6::int
)
UPDATE /*schema*/processing_queue AS q
SET attempt_id = ($8::text || right(q.guid::text, 17))::uuid, attempts = q.attempts + 1,
    running = true, swept = false, began_at = p.began_at, deadline_at = p.deadline_at,
    scheduled_at = p.reserved_until, owner = $9::text
FROM picked AS p
WHERE q.ctid = p.row_id /*one-shard: AND q.shard_id = $1*/
RETURNING
    q.shard_id, p.id, q.guid, q.attempt_id, p.spec, p.due_at, q.began_at, q.deadline_at,
    q.attempts, p.occurrence_no, p.occurrence_at, p.expires_at, p.succeeded, p.failed,
    p.interrupted, p.consecutive_failures, p.consecutive_interruptions, p.occurrence_failures,
    p.last_attempt, q.queue, q.priority, p.series, q.need;

-- name: confirm shard-local
-- Of armed attempts those that do not stand: the row or the action knows them no more, or they
-- expired. First a row without an attempt, which tells the time. Rows are found by their guid alone:
-- a condition on `running` would let a planner go through all that run, once for each.
-- $1 guids, $2 attempt ids
SELECT NULL::uuid AS attempt_id, false AS is_gone, statement_timestamp() AS now
UNION ALL
SELECT u.attempt_id, a.expired IS NULL OR q.stands IS NOT TRUE, NULL
FROM unnest($1::uuid[], $2::uuid[]) AS u (guid, attempt_id)
LEFT JOIN LATERAL (
    SELECT s.expires_at <= statement_timestamp() IS TRUE AS expired
    FROM /*schema*/scheduled_action AS s
    WHERE s.guid = u.guid AND s.state = 'active' /*one-shard: AND s.shard_id = $3*/
    LIMIT 1
) AS a ON true
LEFT JOIN LATERAL (
    SELECT n.running AND n.attempt_id = u.attempt_id AS stands
    FROM /*schema*/processing_queue AS n
    WHERE n.guid = u.guid /*one-shard: AND n.shard_id = $3*/
    LIMIT 1
) AS q ON true
WHERE a.expired IS NOT FALSE OR q.stands IS NOT TRUE;

-- name: begin_next_due shard-local
-- The earliest row of each lane, running or not; if it was due a moment ago, also the earliest one
-- that was not.
-- $1 shards, $2 queues, $3 priorities, $4 needs, $5 since, $6 the moment
SELECT first.scheduled_at AS first_at, behind.scheduled_at AS behind_at,
       statement_timestamp() AS now
FROM unnest($1::int[], $2::text[], $3::smallint[], $4::text[], $5::timestamptz[])
    WITH ORDINALITY AS d (shard_id, queue, priority, need, since, place)
LEFT JOIN LATERAL (
    SELECT q.scheduled_at
    FROM /*schema*/processing_queue AS q
    WHERE q.shard_id = d.shard_id AND q.queue = d.queue AND q.priority = d.priority
      AND q.need = d.need AND q.scheduled_at >= coalesce(d.since, '-infinity')
      /*one-shard: AND q.shard_id = $7*/
    ORDER BY q.scheduled_at
    LIMIT 1
) AS first ON true
LEFT JOIN LATERAL (
    SELECT q.scheduled_at
    FROM /*schema*/processing_queue AS q
    WHERE q.shard_id = d.shard_id AND q.queue = d.queue AND q.priority = d.priority
      AND q.need = d.need AND q.scheduled_at > statement_timestamp() - $6::interval
      AND first.scheduled_at <= statement_timestamp() - $6::interval
      /*one-shard: AND q.shard_id = $7*/
    ORDER BY q.scheduled_at
    LIMIT 1
) AS behind ON true
ORDER BY d.place;

-- name: begin_next_due_lane shard-local
-- The same for one lane.
-- $1 shard, $2 queue, $3 priority, $4 need, $5 since, $6 the moment
SELECT first.scheduled_at AS first_at, (
    SELECT min(q.scheduled_at)
    FROM /*schema*/processing_queue AS q
    WHERE q.shard_id = $1::int AND q.queue = $2::text AND q.priority = $3::smallint
      AND q.need = $4::text AND q.scheduled_at > statement_timestamp() - $6::interval
      AND first.scheduled_at <= statement_timestamp() - $6::interval
) AS behind_at, statement_timestamp() AS now
FROM (
    SELECT min(q.scheduled_at) AS scheduled_at
    FROM /*schema*/processing_queue AS q
    WHERE q.shard_id = $1::int AND q.queue = $2::text AND q.priority = $3::smallint
      AND q.need = $4::text AND q.scheduled_at >= coalesce($5::timestamptz, '-infinity')
) AS first;

-- name: begin_reached shard-local
-- Where the next look into a lane goes on, if more due rows stand there than were looked at.
-- $1 shards, $2 queues, $3 priorities, $4 needs, $5 since, $6 rows looked at
SELECT (
    SELECT q.scheduled_at
    FROM /*schema*/processing_queue AS q
    WHERE q.shard_id = d.shard_id AND q.queue = d.queue AND q.priority = d.priority
      AND q.need = d.need AND q.scheduled_at >= coalesce(d.since, '-infinity')
      AND q.scheduled_at <= statement_timestamp() AND NOT q.running
      /*one-shard: AND q.shard_id = $7*/
    ORDER BY q.scheduled_at
    OFFSET d.looked_at
    LIMIT 1
) AS reached_at
FROM unnest($1::int[], $2::text[], $3::smallint[], $4::text[], $5::timestamptz[], $6::int[])
    WITH ORDINALITY AS d (shard_id, queue, priority, need, since, looked_at, place)
ORDER BY d.place;

-- name: begin_reached_lane shard-local
-- The same for one lane.
-- $1 shard, $2 queue, $3 priority, $4 need, $5 since, $6 rows looked at
SELECT (
    SELECT q.scheduled_at
    FROM /*schema*/processing_queue AS q
    WHERE q.shard_id = $1::int AND q.queue = $2::text AND q.priority = $3::smallint
      AND q.need = $4::text AND q.scheduled_at >= coalesce($5::timestamptz, '-infinity')
      AND q.scheduled_at <= statement_timestamp() AND NOT q.running
    ORDER BY q.scheduled_at
    OFFSET $6::int
    LIMIT 1
) AS reached_at;

-- name: find_begun shard-local
-- Running rows that a batch began. When they had been due is not known any more: began_at instead.
-- $1 shards, $2 first half of the attempt ids
SELECT
    q.shard_id, a.id, q.guid, q.attempt_id, a.spec, q.began_at AS due_at, q.began_at,
    q.deadline_at, q.attempts, a.occurrence_no, a.occurrence_at, a.expires_at, a.succeeded, a.failed,
    a.interrupted, a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures,
    a.last_attempt, q.queue, q.priority, a.series, q.need
FROM unnest($1::int[]) AS h (shard_id)
CROSS JOIN LATERAL (
    (
        SELECT r.shard_id, r.guid, r.attempt_id, r.began_at, r.deadline_at, r.attempts, r.queue,
               r.priority, r.need
        FROM /*schema*/processing_queue AS r
        WHERE r.shard_id = h.shard_id AND r.running
          AND r.attempt_id = ($2::text || right(r.guid::text, 17))::uuid
          /*one-shard: AND r.shard_id = $3*/
        ORDER BY r.scheduled_at
    )
    UNION ALL
    SELECT i.shard_id, i.guid, i.attempt_id, i.began_at, i.deadline_at, 1, i.queue, i.priority, ''
    FROM /*schema*/incoming_queue AS i
    WHERE i.shard_id = h.shard_id AND i.attempt_id IS NOT NULL
      AND i.attempt_id = ($2::text || right(i.guid::text, 17))::uuid
      /*one-shard: AND i.shard_id = $3*/
) AS q
CROSS JOIN LATERAL (
    SELECT s.*
    FROM /*schema*/scheduled_action AS s
    WHERE s.guid = q.guid /*one-shard: AND s.shard_id = $3*/
    LIMIT 1
) AS a;

-- name: extend shard-local
-- Prolong reservations of attempts that still run and whose generation is the current one. A row that
-- somebody holds is not waited for: it counts as running, and is prolonged the next time. The CASE
-- keeps the planner from the index of running rows: it would read all of them.
-- $1 guids (sorted), $2 attempt ids, $3 window + grace
WITH mine AS MATERIALIZED (
    SELECT q.ctid AS row_id, q.attempt_id
    FROM /*schema*/processing_queue AS q
    WHERE q.guid = ANY ($1::uuid[])
      AND CASE WHEN q.running THEN
          q.attempt_id = ($2::uuid[])[width_bucket(q.guid, $1::uuid[])]
      END
      AND EXISTS (
          SELECT 1 FROM /*schema*/scheduled_action AS a
          WHERE a.guid = q.guid /*one-shard: AND a.shard_id = $4*/
          OFFSET 0
      )
      /*one-shard: AND q.shard_id = $4*/
), free AS (
    SELECT f.row_id
    FROM mine AS m
    CROSS JOIN LATERAL (
        SELECT q.ctid AS row_id
        FROM /*schema*/processing_queue AS q
        WHERE q.ctid = m.row_id AND q.running AND q.attempt_id = m.attempt_id
          /*one-shard: AND q.shard_id = $4*/
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS f
), prolonged AS (
    UPDATE /*schema*/processing_queue AS q
    SET scheduled_at = statement_timestamp() + $3::interval
    FROM free AS f
    WHERE q.ctid = f.row_id /*one-shard: AND q.shard_id = $4*/
    RETURNING q.guid
)
SELECT m.attempt_id FROM mine AS m;

-- name: list_cancelling shard-local
-- Attempts of a worker that were asked to end, by an index in which there is next to nothing; the
-- time leaves out the partitions that are older than all that the worker has in hand.
-- $1 owner, $2 since
SELECT t.attempt_id
FROM /*schema*/attempt_log AS t
WHERE t.outcome = 'cancelling' AND t.owner = $1::text AND t.began_at >= $2::timestamptz
  /*one-shard: AND t.shard_id = $3*/;

-- name: list_lanes shard-local
-- Every lane of some shards and its earliest time, by leaping from lane to lane in the index.
-- $1 shards
WITH RECURSIVE lane AS (
    SELECT h.shard_id, f.queue, f.priority, f.need, f.scheduled_at
    FROM unnest($1::int[]) AS h (shard_id)
    CROSS JOIN LATERAL (
        SELECT q.queue, q.priority, q.need, q.scheduled_at
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = h.shard_id /*one-shard: AND q.shard_id = $2*/
        ORDER BY q.queue, q.priority, q.need, q.scheduled_at
        LIMIT 1
    ) AS f
    UNION ALL
    SELECT p.shard_id, n.queue, n.priority, n.need, n.scheduled_at
    FROM lane AS p
    CROSS JOIN LATERAL (
        SELECT q.queue, q.priority, q.need, q.scheduled_at
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = p.shard_id AND (q.queue, q.priority, q.need) > (p.queue, p.priority, p.need)
          /*one-shard: AND q.shard_id = $2*/
        ORDER BY q.queue, q.priority, q.need, q.scheduled_at
        LIMIT 1
    ) AS n
)
SELECT l.shard_id, l.queue, l.priority, l.need, l.scheduled_at FROM lane AS l;

-- name: list_needs shard-local
-- The needs that rows have, in order, by leaping from one to the next in their small index.
-- $1 limit
WITH RECURSIVE present AS (
    (
        SELECT q.need
        FROM /*schema*/processing_queue AS q
        WHERE q.need <> '' AND q.need > '' /*one-shard: AND q.shard_id = $2*/
        ORDER BY q.need, q.shard_id, q.queue, q.priority, q.scheduled_at
        LIMIT 1
    )
    UNION ALL
    SELECT n.need
    FROM present AS p
    CROSS JOIN LATERAL (
        SELECT q.need
        FROM /*schema*/processing_queue AS q
        WHERE q.need <> '' AND q.need > p.need /*one-shard: AND q.shard_id = $2*/
        ORDER BY q.need, q.shard_id, q.queue, q.priority, q.scheduled_at
        LIMIT 1
    ) AS n
)
SELECT p.need FROM present AS p LIMIT $1::int;

-- name: list_need_lanes shard-local
-- Every lane with one of some needs and its earliest time, in the same way.
-- $1 needs
WITH RECURSIVE lane AS (
    SELECT f.need, f.shard_id, f.queue, f.priority, f.scheduled_at
    FROM unnest($1::text[]) AS u (need)
    CROSS JOIN LATERAL (
        SELECT q.need, q.shard_id, q.queue, q.priority, q.scheduled_at
        FROM /*schema*/processing_queue AS q
        WHERE q.need <> '' AND q.need = u.need /*one-shard: AND q.shard_id = $2*/
        ORDER BY q.need, q.shard_id, q.queue, q.priority, q.scheduled_at
        LIMIT 1
    ) AS f
    UNION ALL
    SELECT n.need, n.shard_id, n.queue, n.priority, n.scheduled_at
    FROM lane AS p
    CROSS JOIN LATERAL (
        SELECT q.need, q.shard_id, q.queue, q.priority, q.scheduled_at
        FROM /*schema*/processing_queue AS q
        WHERE q.need <> '' AND q.need = p.need
          AND (q.shard_id, q.queue, q.priority) > (p.shard_id, p.queue, p.priority)
          /*one-shard: AND q.shard_id = $2*/
        ORDER BY q.need, q.shard_id, q.queue, q.priority, q.scheduled_at
        LIMIT 1
    ) AS n
)
SELECT l.need, l.shard_id, l.queue, l.priority, l.scheduled_at FROM lane AS l;

-- name: count_due shard-local
-- Rows of some lanes that are due, or will be by a moment, and do not run, counted up to a number.
-- $1 shards, $2 queues, $3 priorities, $4 needs, $5 count, $6 the moment, or NULL
SELECT count(*) AS count
FROM (
    SELECT 1
    FROM unnest($1::int[], $2::text[], $3::smallint[], $4::text[])
        AS d (shard_id, queue, priority, need)
    CROSS JOIN LATERAL (
        SELECT 1
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = d.shard_id AND q.queue = d.queue AND q.priority = d.priority
          AND q.need = d.need AND NOT q.running
          AND q.scheduled_at <= greatest(statement_timestamp(), $6::timestamptz)
          /*one-shard: AND q.shard_id = $7*/
        ORDER BY q.scheduled_at
        LIMIT $5::int
    ) AS r
    LIMIT $5::int
) AS few;

-- name: poll many-shards
-- Which transactions are in progress, and which shards have incoming rows behind their mark: one
-- snapshot for both, so that what a transaction wrote is seen as soon as it is not named any more.
-- Subtransactions count as what they belong to; prepared ones are in progress. A snapshot lists those
-- that are older than the last to have ended: of those after it no more is known than the number
-- that the next one gets (its lower 32 bits), which is what ages are counted from.
-- $1 shards, $2 marks, $3 how far marks lag behind
SELECT statement_timestamp() AS now,
    ARRAY(SELECT x.number::text::bigint FROM pg_snapshot_xip(pg_current_snapshot()) AS x (number)) AS open_ids,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_known,
    age('3'::xid)::bigint + 3 AS next_32,
    ARRAY(
        SELECT u.shard_id
        FROM unnest($1::int[], $2::timestamptz[]) AS u (shard_id, mark)
        WHERE EXISTS (
            SELECT 1 FROM /*schema*/incoming_queue AS i
            WHERE i.shard_id = u.shard_id
              AND i.created_at >= least(u.mark, statement_timestamp() - $3::interval)
              AND i.attempt_id IS NULL
            OFFSET 0
        )
    ) AS shards;

-- name: poll_part shard-local
-- Which shards have incoming rows behind their marks. A cluster has no common snapshot to ask.
-- $1 shards, $2 marks, $3 how far marks lag behind
SELECT u.shard_id
FROM unnest($1::int[], $2::timestamptz[]) AS u (shard_id, mark)
CROSS JOIN LATERAL (
    SELECT 1
    FROM /*schema*/incoming_queue AS i
    WHERE i.shard_id = u.shard_id
      AND i.created_at >= least(u.mark, statement_timestamp() - $3::interval)
      AND i.attempt_id IS NULL /*one-shard: AND i.shard_id = $4*/
    LIMIT 1
) AS filled;

-- name: list_lapsed_running shard-local
-- Attempts that outlived their reservation, with their actions. What somebody holds
-- just now is passed over: it is found again.
-- $1 shards, $2 limit, $3 rows to look at in a shard
SELECT
    q.shard_id, a.id, q.guid, q.attempt_id, a.spec, q.scheduled_at AS due_at, q.began_at,
    q.deadline_at, q.attempts, a.occurrence_no, a.occurrence_at, a.expires_at, a.succeeded, a.failed,
    a.interrupted, a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures,
    a.last_attempt, q.owner, q.running, statement_timestamp() AS now
FROM unnest($1::int[]) AS h (shard_id)
CROSS JOIN LATERAL (
    SELECT r.*
    FROM /*schema*/processing_queue AS r
    WHERE r.shard_id = h.shard_id AND r.running AND r.scheduled_at <= statement_timestamp()
      /*one-shard: AND r.shard_id = $4*/
    ORDER BY r.scheduled_at
    LIMIT $3::int
) AS q
CROSS JOIN LATERAL (
    SELECT s.*
    FROM /*schema*/scheduled_action AS s
    WHERE s.guid = q.guid /*one-shard: AND s.shard_id = $4*/
    LIMIT 1
    FOR SHARE SKIP LOCKED
) AS a
LIMIT $2::int;

-- name: list_orphans shard-local
-- Running attempts of some owners in order of guid, whatever their reservations say. First all of
-- them, by the small index of what runs (the order asks for it), and only then their actions.
-- $1 shards, $2 owners, $3 behind this guid, $4 limit
WITH mine AS MATERIALIZED (
    SELECT r.*
    FROM unnest($1::int[]) AS h (shard_id)
    CROSS JOIN LATERAL (
        SELECT
            p.shard_id, p.guid, p.attempt_id, p.scheduled_at, p.began_at, p.deadline_at, p.attempts,
            p.owner, p.running
        FROM /*schema*/processing_queue AS p
        WHERE p.shard_id = h.shard_id AND p.running /*one-shard: AND p.shard_id = $5*/
        ORDER BY p.scheduled_at
        OFFSET 0
    ) AS r
    WHERE r.owner = ANY ($2::text[]) AND ($3::uuid IS NULL OR r.guid > $3::uuid)
)
SELECT
    q.shard_id, a.id, q.guid, q.attempt_id, a.spec, q.scheduled_at AS due_at, q.began_at,
    q.deadline_at, q.attempts, a.occurrence_no, a.occurrence_at, a.expires_at, a.succeeded, a.failed,
    a.interrupted, a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures,
    a.last_attempt, q.owner, q.running, statement_timestamp() AS now
FROM mine AS q
CROSS JOIN LATERAL (
    SELECT s.*
    FROM /*schema*/scheduled_action AS s
    WHERE s.guid = q.guid /*one-shard: AND s.shard_id = $5*/
    LIMIT 1
) AS a
ORDER BY q.guid
LIMIT $4::int;

-- name: list_lapsed_expired shard-local
-- Due rows whose action expired: no attempt may begin. By the index of expiries, not of lanes: most
-- actions have none, and a backlog does not hide the others. What somebody holds is passed over.
-- $1 shards, $2 limit, $3 rows to look at in a shard
SELECT
    q.shard_id, a.id, q.guid, q.attempt_id, a.spec, q.scheduled_at AS due_at, q.began_at,
    q.deadline_at, q.attempts, a.occurrence_no, a.occurrence_at, a.expires_at, a.succeeded, a.failed,
    a.interrupted, a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures,
    a.last_attempt, q.owner, q.running, statement_timestamp() AS now
FROM unnest($1::int[]) AS h (shard_id)
CROSS JOIN LATERAL (
    SELECT e.guid
    FROM /*schema*/scheduled_action AS e
    WHERE e.shard_id = h.shard_id AND e.expires_at <= statement_timestamp() AND e.state = 'active'
      /*one-shard: AND e.shard_id = $4*/
    ORDER BY e.expires_at
    LIMIT $3::int
) AS e
CROSS JOIN LATERAL (
    SELECT p.*
    FROM /*schema*/processing_queue AS p
    WHERE p.guid = e.guid /*one-shard: AND p.shard_id = $4*/
    LIMIT 1
) AS q
CROSS JOIN LATERAL (
    SELECT s.*
    FROM /*schema*/scheduled_action AS s
    WHERE s.guid = e.guid /*one-shard: AND s.shard_id = $4*/
    LIMIT 1
    FOR SHARE SKIP LOCKED
) AS a
WHERE q.scheduled_at <= statement_timestamp() AND NOT q.running
LIMIT $2::int;

-- name: end_pauses_find shard-local
-- Shards in which a pause has ended, behind these places of theirs. Most often there is none.
-- $1 shards, $2 ends and $3 ids of the places
SELECT h.shard_id
FROM unnest($1::int[], $2::timestamptz[], $3::text[]) AS h (shard_id, paused_until, id)
CROSS JOIN LATERAL (
    SELECT 1
    FROM /*schema*/scheduled_action AS s
    WHERE s.shard_id = h.shard_id AND s.paused_until <= statement_timestamp()
      AND (s.paused_until, s.id) > (h.paused_until, h.id) /*one-shard: AND s.shard_id = $4*/
    LIMIT 1
) AS ended;

-- name: end_pauses_take shard-local
-- The first pauses that have ended in each shard, behind its place: first their places by the index,
-- then the actions, locked. Of one that somebody holds, or that was changed meanwhile, the place is
-- all that is told. The columns are those of `Decoder.action_of`, and `place_until`, `place_id`.
-- $1 shards, $2 lease guids, $3 ends and $4 ids of the places, $5 limit for each shard, $6 silent
-- (NULL: the lease must be the given one)
SELECT
    e.shard_id, e.paused_until AS place_until, e.id AS place_id, a.id, a.guid, a.spec, a.state,
    a.created_at, a.updated_at, a.occurrence_no, a.occurrence_at, a.attempts, a.succeeded, a.failed,
    a.interrupted, a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures,
    a.last_attempt, a.scheduled_at, a.expires_at, a.reason, a.paused_until, a.queue, a.priority,
    NULL::timestamptz AS due_at, NULL::int AS begun, false AS running, NULL::text AS need,
    statement_timestamp() AS now
FROM unnest($1::int[], $2::uuid[], $3::timestamptz[], $4::text[])
    AS h (shard_id, lease_guid, paused_until, id)
JOIN /*schema*/shard_lock AS l ON l.shard_id = h.shard_id
CROSS JOIN LATERAL (
    SELECT s.shard_id, s.paused_until, s.id
    FROM /*schema*/scheduled_action AS s
    WHERE s.shard_id = h.shard_id AND s.paused_until <= statement_timestamp()
      AND (s.paused_until, s.id) > (h.paused_until, h.id) /*one-shard: AND s.shard_id = $7*/
    ORDER BY s.paused_until, s.id
    LIMIT $5::int
) AS e
LEFT JOIN LATERAL (
    SELECT p.*
    FROM /*schema*/scheduled_action AS p
    WHERE p.shard_id = e.shard_id AND p.id = e.id AND p.state = 'paused'
      AND p.paused_until <= statement_timestamp() /*one-shard: AND p.shard_id = $7*/
    LIMIT 1
    FOR UPDATE SKIP LOCKED
) AS a ON true
WHERE (l.lease_guid = h.lease_guid OR $6::interval IS NOT NULL AND (
    l.lease_guid IS NULL OR l.heartbeat_at < statement_timestamp() - $6::interval
)) /*one-shard: AND l.shard_id = $7*/
ORDER BY e.shard_id, e.paused_until, e.id;

-- name: end_pauses shard-local
-- Actions go on. They are locked: a ctid is good until we are done.
-- $1 shards, $2 ids, $3 guids, $4 scheduled_at, $5 occurrence_at, $6 expires_at
WITH ended AS MATERIALIZED (
    SELECT r.row_id, u.*
    FROM unnest(
        $1::int[], $2::text[], $3::uuid[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[]
    ) AS u (shard_id, id, guid, scheduled_at, occurrence_at, expires_at)
    CROSS JOIN LATERAL (
        SELECT s.ctid AS row_id
        FROM /*schema*/scheduled_action AS s
        WHERE s.shard_id = u.shard_id AND s.id = u.id /*one-shard: AND s.shard_id = $7*/
        LIMIT 1
    ) AS r
)
UPDATE /*schema*/scheduled_action AS a
SET guid = u.guid, state = 'active', scheduled_at = u.scheduled_at, occurrence_at = u.occurrence_at,
    expires_at = u.expires_at, keyed = false, updated_at = statement_timestamp(),
    series = coalesce(a.series, a.guid), reason = NULL, paused_until = NULL
FROM ended AS u
WHERE a.ctid = u.row_id /*one-shard: AND a.shard_id = $7*/
RETURNING a.updated_at;

-- name: end_pauses_audit shard-local
-- Pages of the audit are cut between two moments: each action has its own, by microseconds.
-- $1 shards, $2 ids, $3 guids, $4 at, $5 verb, $6 actor, $7 face
INSERT INTO /*schema*/audit (at, guid, shard_id, count, verb, actor, id, face)
SELECT
    $4::timestamptz + (u.no - 1) * interval '1 microsecond', u.guid, l.shard_id, 1, $5::text,
    $6::text, u.id, $7::text
FROM unnest($1::int[], $2::text[], $3::uuid[]) WITH ORDINALITY AS u (shard_id, id, guid, no)
JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id
WHERE true /*one-shard: AND l.shard_id = $8*/;

-- name: delete_stale shard-local
-- Remove due rows of old generations, and lapsed attempts of them. Changes take their rows with them;
-- what is left was being moved or attempted, or held by somebody, when its generation ended. A guid never comes back, so nothing can
-- happen between the look and the deletion. Only the oldest $3 rows of a lane are looked at: in a
-- backlog the others come later, as the head moves on.
-- $1 shards, $2 limit, $3 rows to look at in a lane
WITH RECURSIVE lane AS (
    SELECT h.shard_id, f.queue, f.priority, f.need
    FROM unnest($1::int[]) AS h (shard_id)
    CROSS JOIN LATERAL (
        SELECT q.queue, q.priority, q.need
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = h.shard_id /*one-shard: AND q.shard_id = $4*/
        ORDER BY q.queue, q.priority, q.need
        LIMIT 1
    ) AS f
    UNION ALL
    SELECT p.shard_id, n.queue, n.priority, n.need
    FROM lane AS p
    CROSS JOIN LATERAL (
        SELECT q.queue, q.priority, q.need
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = p.shard_id AND (q.queue, q.priority, q.need) > (p.queue, p.priority, p.need)
          /*one-shard: AND q.shard_id = $4*/
        ORDER BY q.queue, q.priority, q.need
        LIMIT 1
    ) AS n
), stale AS (
    SELECT gone.row_id
    FROM (
        SELECT r.guid, r.row_id
        FROM unnest($1::int[]) AS h (shard_id)
        CROSS JOIN LATERAL (
            SELECT q.guid, q.ctid AS row_id
            FROM /*schema*/processing_queue AS q
            WHERE q.shard_id = h.shard_id AND q.running AND q.scheduled_at <= statement_timestamp()
              /*one-shard: AND q.shard_id = $4*/
            ORDER BY q.scheduled_at
            LIMIT $3::int
        ) AS r
        UNION ALL
        SELECT i.guid, i.row_id
        FROM lane AS l
        CROSS JOIN LATERAL (
            SELECT q.guid, q.ctid AS row_id
            FROM /*schema*/processing_queue AS q
            WHERE q.shard_id = l.shard_id AND q.queue = l.queue AND q.priority = l.priority
              AND q.need = l.need
              AND q.scheduled_at <= statement_timestamp() AND NOT q.running
              /*one-shard: AND q.shard_id = $4*/
            ORDER BY q.scheduled_at
            LIMIT $3::int
        ) AS i
    ) AS head
    CROSS JOIN LATERAL (
        SELECT q.ctid AS row_id
        FROM /*schema*/processing_queue AS q
        WHERE q.ctid = head.row_id /*one-shard: AND q.shard_id = $4*/
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS gone
    WHERE NOT EXISTS (
        SELECT 1 FROM /*schema*/scheduled_action AS a
        WHERE a.guid = head.guid /*one-shard: AND a.shard_id = $4*/
        OFFSET 0
    )
    LIMIT $2::int
)
DELETE FROM /*schema*/processing_queue AS q
USING stale AS s
WHERE q.ctid = s.row_id /*one-shard: AND q.shard_id = $4*/
RETURNING q.shard_id;

-- name: finish_delete_begun many-shards
-- The same for attempts that were begun in place. Nothing says when their rows were created: the
-- index is read as far as the shard goes, for what seldom happens.
-- $1 shards, $2 guids, $3 attempt ids
DELETE FROM /*schema*/incoming_queue AS i
WHERE i.ctid = ANY (ARRAY(
    SELECT r.row_id
    FROM unnest($1::int[], $2::uuid[], $3::uuid[]) AS u (shard_id, guid, attempt_id)
    CROSS JOIN LATERAL (
        SELECT n.ctid AS row_id
        FROM /*schema*/incoming_queue AS n
        WHERE n.shard_id = u.shard_id AND n.guid = u.guid AND n.attempt_id = u.attempt_id
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS r
    WHERE NOT EXISTS (
        SELECT 1 FROM /*schema*/scheduled_action AS a WHERE a.guid = u.guid OFFSET 0
    )
));

-- name: finish_drop_begun shard-local
-- The same where rows have to be named by their keys.
-- $1 shards, $2 guids, $3 attempt ids
WITH stale AS MATERIALIZED (
    SELECT r.row_id, r.shard_id
    FROM unnest($1::int[], $2::uuid[], $3::uuid[]) AS u (shard_id, guid, attempt_id)
    CROSS JOIN LATERAL (
        SELECT n.ctid AS row_id, n.shard_id
        FROM /*schema*/incoming_queue AS n
        WHERE n.shard_id = u.shard_id AND n.guid = u.guid AND n.attempt_id = u.attempt_id
          /*one-shard: AND n.shard_id = $4*/
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS r
    WHERE NOT EXISTS (
        SELECT 1 FROM /*schema*/scheduled_action AS a
        WHERE a.guid = u.guid /*one-shard: AND a.shard_id = $4*/
        OFFSET 0
    )
)
DELETE FROM /*schema*/incoming_queue AS i
USING stale AS s
WHERE i.ctid = s.row_id /*one-shard: AND i.shard_id = $4*/;

-- name: finish_delete_stale shard-local
-- Rows of certain guids: an attempt ended whose generation is gone.
-- $1 guids
WITH stale AS (
    SELECT q.ctid AS row_id
    FROM /*schema*/processing_queue AS q
    WHERE q.guid = ANY ($1::uuid[])
      AND NOT EXISTS (
          SELECT 1 FROM /*schema*/scheduled_action AS a
          WHERE a.guid = q.guid /*one-shard: AND a.shard_id = $2*/
          OFFSET 0
      )
      /*one-shard: AND q.shard_id = $2*/
    FOR UPDATE SKIP LOCKED
)
DELETE FROM /*schema*/processing_queue AS q
USING stale AS s
WHERE q.ctid = s.row_id /*one-shard: AND q.shard_id = $2*/;
