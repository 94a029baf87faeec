-- What the owner of a shard does. See actions.sql about `one-shard:`.
--
-- Plans must not depend on statistics: a queue that was empty when it was vacuumed is one row to the
-- planner, and then any order of joining looks as good as another, such as reading the whole table
-- for every element of an array. So nothing here leaves a choice: what is written is found by
-- `= ANY (array)` or by ctid, what is joined stands in a LATERAL that its LIMIT keeps where it is.
-- What belongs to a guid is then found in arrays sorted by guid: width_bucket is a binary search.

-- name: move many-shards
-- Take rows off the incoming queues, oldest first, and put those of current generations into the
-- processing queues. The DELETE is the fence: who deletes a row is the one who moves it. Incoming
-- rows are never updated, so their ctid is good for the length of a statement.
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
        ORDER BY n.created_at, n.guid
        LIMIT $4::int
    ) AS oldest
    WHERE i.ctid = oldest.row_id
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
-- Move, and begin at once what is due on arrival and finds room: such a row enters the processing
-- queue with its attempt and its reservation, and is written once instead of twice. An action that
-- is being changed cannot be held FOR SHARE: its row is moved and not begun. Gives all rows taken;
-- `attempts` is NULL where the generation is gone and the row is dropped, and `inserted` says how
-- many rows the processing queue really got.
-- $1 shards, $2 lease guids, $3 marks, $4 limit per shard, $5 queues, $6 room in each,
-- $7 batch, $8 owner, $9 grace, $10 window, $11 how far marks lag behind
WITH held AS (
    SELECT l.shard_id, least(u.mark, statement_timestamp() - $11::interval) AS mark
    FROM unnest($1::int[], $2::uuid[], $3::timestamptz[]) AS u (shard_id, lease_guid, mark)
    JOIN /*schema*/shard_lock AS l ON l.shard_id = u.shard_id AND l.lease_guid = u.lease_guid
), taken AS (
    DELETE FROM /*schema*/incoming_queue AS i
    USING held AS h
    CROSS JOIN LATERAL (
        SELECT n.ctid AS row_id
        FROM /*schema*/incoming_queue AS n
        WHERE n.shard_id = h.shard_id AND n.created_at >= h.mark
        ORDER BY n.created_at, n.guid
        LIMIT $4::int
    ) AS oldest
    WHERE i.ctid = oldest.row_id
    RETURNING i.shard_id, i.created_at, i.guid, i.queue, i.priority, i.scheduled_at
), known AS MATERIALIZED (
    SELECT
        t.shard_id, t.created_at AS arrived_at, t.guid, t.queue, t.priority, t.scheduled_at,
        g.attempts, a.id, a.spec, a.created_at, a.timeout_us, a.occurrence_no, a.occurrence_at,
        a.expires_at, a.succeeded, a.failed, a.interrupted, a.consecutive_failures,
        a.consecutive_interruptions, a.occurrence_failures, a.last_attempt, a.series,
        a.id IS NOT NULL AND t.scheduled_at <= statement_timestamp()
            AND row_number() OVER (PARTITION BY t.queue ORDER BY t.scheduled_at)
                <= coalesce(($6::int[])[array_position($5::text[], t.queue)], 0) AS begins
    FROM taken AS t
    LEFT JOIN LATERAL (
        SELECT s.attempts FROM /*schema*/scheduled_action AS s WHERE s.guid = t.guid LIMIT 1
    ) AS g ON true
    LEFT JOIN LATERAL (
        SELECT s.*
        FROM /*schema*/scheduled_action AS s
        WHERE s.guid = t.guid AND s.state = 'active'
          AND (s.expires_at IS NULL OR s.expires_at > statement_timestamp())
        LIMIT 1
        FOR SHARE SKIP LOCKED
    ) AS a ON true
), put AS (
    INSERT INTO /*schema*/processing_queue (
        shard_id, guid, queue, priority, scheduled_at, attempts, running, swept, attempt_id,
        began_at, deadline_at, owner
    )
    SELECT
        k.shard_id, k.guid, k.queue, k.priority,
        CASE WHEN k.begins THEN statement_timestamp()
            + least(k.timeout_us * interval '1 microsecond', $10::interval) + $9::interval
            ELSE k.scheduled_at END,
        k.attempts + k.begins::int, k.begins, false,
        CASE WHEN k.begins THEN md5($7::uuid::text || k.guid::text)::uuid END,
        CASE WHEN k.begins THEN statement_timestamp() END,
        CASE WHEN k.begins
            THEN statement_timestamp() + k.timeout_us * interval '1 microsecond' END,
        CASE WHEN k.begins THEN $8::text END
    FROM known AS k
    WHERE k.attempts IS NOT NULL
    ON CONFLICT (guid, shard_id) DO NOTHING
    RETURNING guid
)
SELECT
    k.shard_id, k.id, k.guid, md5($7::uuid::text || k.guid::text)::uuid AS attempt_id, k.spec,
    k.scheduled_at AS due_at, statement_timestamp() AS began_at,
    statement_timestamp() + k.timeout_us * interval '1 microsecond' AS deadline_at,
    k.created_at, k.attempts + 1 AS attempts, k.occurrence_no, k.occurrence_at, k.expires_at, k.succeeded,
    k.failed, k.interrupted, k.consecutive_failures, k.consecutive_interruptions,
    k.occurrence_failures, k.last_attempt, k.queue, k.priority, k.begins, k.arrived_at,
    (SELECT count(*) FROM put) AS inserted, k.series
FROM known AS k;

-- name: move_held shard-local
-- The lease, held still until the end of the transaction.
-- $1 shard, $2 lease guid
SELECT statement_timestamp() AS now
FROM /*schema*/shard_lock AS l
WHERE l.shard_id = $1::int AND l.lease_guid = $2::uuid
FOR SHARE;

-- name: move_unheld shard-local
-- The same for a helper, and where to look from.
-- $1 shard, $2 silent
SELECT statement_timestamp() AS now, l.incoming_mark
FROM /*schema*/shard_lock AS l
WHERE l.shard_id = $1::int
  AND (l.lease_guid IS NULL OR l.heartbeat_at < statement_timestamp() - $2::interval)
FOR SHARE;

-- name: move_take shard-local
-- First half of a move in one shard: what was taken, and the attempts of its action (NULL: the
-- generation is gone, the row is dropped).
-- $1 shard, $2 mark, $3 limit, $4 how far marks lag behind, $5 least age
WITH taken AS (
    DELETE FROM /*schema*/incoming_queue AS i
    WHERE i.shard_id = $1::int AND (i.created_at, i.guid) IN (
        SELECT n.created_at, n.guid
        FROM /*schema*/incoming_queue AS n
        WHERE n.shard_id = $1::int
          AND n.created_at >= least($2::timestamptz, statement_timestamp() - $4::interval)
          AND n.created_at <= CASE WHEN $5::interval IS NULL THEN 'infinity'
              ELSE statement_timestamp() - $5::interval END
        ORDER BY n.created_at, n.guid
        LIMIT $3::int
    )
    RETURNING i.shard_id, i.created_at, i.guid, i.queue, i.priority, i.scheduled_at
)
SELECT t.guid, t.queue, t.priority, t.scheduled_at, a.attempts, t.created_at
FROM taken AS t
LEFT JOIN LATERAL (
    SELECT s.attempts
    FROM /*schema*/scheduled_action AS s
    WHERE s.guid = t.guid /*one-shard: AND s.shard_id = $1*/
    LIMIT 1
) AS a ON true
ORDER BY t.created_at, t.guid;

-- name: move_put shard-local
-- Second half of a move in one shard.
-- $1 shard, $2 guids, $3 queues, $4 priorities, $5 scheduled_at, $6 attempts
INSERT INTO /*schema*/processing_queue
    (shard_id, guid, queue, priority, scheduled_at, attempts, running, swept)
SELECT l.shard_id, u.guid, u.queue, u.priority, u.scheduled_at, u.attempts, false, false
FROM /*schema*/shard_lock AS l
CROSS JOIN unnest($2::uuid[], $3::text[], $4::smallint[], $5::timestamptz[], $6::int[])
    AS u (guid, queue, priority, scheduled_at, attempts)
WHERE l.shard_id = $1::int
ON CONFLICT (guid, shard_id) DO NOTHING
RETURNING guid;

-- name: begin many-shards
-- Begin due rows of many lanes. The actions are held FOR SHARE, which orders this against replace,
-- delete and pause: a row whose action is being changed is left for later, and one whose action has
-- just been changed drops out when it is looked at again. Nothing waits for a lock here, and no more
-- than $13 rows of a lane are looked at in vain: what expired, is held by others or was left behind
-- may stand there by the million. Who finds a lane's head blocked asks for its newest rows ($12).
-- The result is in the order of the demands, then of time; columns of `Decoder.begun_of`.
-- $1 shards, $2 queues, $3 priorities, $4 lease guids (NULL: helper), $5 limits, $6 since,
-- $7 batch, $8 owner, $9 grace, $10 window, $11 silent, $12 newest first, $13 looked at in vain
WITH picked AS (
    SELECT due.*
    FROM unnest(
        $1::int[], $2::text[], $3::smallint[], $4::uuid[], $5::int[], $6::timestamptz[], $13::int[]
    ) AS d (shard_id, queue, priority, lease_guid, rows_max, since, looked_at)
    CROSS JOIN LATERAL (
        SELECT 1 FROM /*schema*/shard_lock AS l
        WHERE l.shard_id = d.shard_id AND CASE
            WHEN d.lease_guid IS NOT NULL THEN l.lease_guid = d.lease_guid
            ELSE l.lease_guid IS NULL OR l.heartbeat_at < statement_timestamp() - $11::interval
        END
        LIMIT 1
    ) AS held
    CROSS JOIN LATERAL (
        SELECT
            head.row_id, head.due_at, a.id, a.spec, a.created_at, a.timeout_us,
            a.occurrence_no, a.occurrence_at, a.expires_at, a.succeeded, a.failed, a.interrupted,
            a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures,
            a.last_attempt, a.series
        FROM (
            (SELECT q.ctid AS row_id, q.guid, q.scheduled_at AS due_at
            FROM /*schema*/processing_queue AS q
            WHERE q.shard_id = d.shard_id AND q.queue = d.queue AND q.priority = d.priority
              AND q.scheduled_at >= coalesce(d.since, '-infinity')
              AND q.scheduled_at <= statement_timestamp()
                  - CASE WHEN d.lease_guid IS NULL THEN interval '1 second' ELSE interval '0' END
              AND NOT q.running AND NOT $12::boolean
            ORDER BY q.scheduled_at
            LIMIT d.rows_max + d.looked_at)
            UNION ALL
            (SELECT q.ctid, q.guid, q.scheduled_at
            FROM /*schema*/processing_queue AS q
            WHERE q.shard_id = d.shard_id AND q.queue = d.queue AND q.priority = d.priority
              AND q.scheduled_at <= statement_timestamp()
                  - CASE WHEN d.lease_guid IS NULL THEN interval '1 second' ELSE interval '0' END
              AND NOT q.running AND $12::boolean
            ORDER BY q.scheduled_at DESC
            LIMIT d.rows_max + d.looked_at)
        ) AS head
        CROSS JOIN LATERAL (
            SELECT s.*
            FROM /*schema*/scheduled_action AS s
            WHERE s.guid = head.guid AND s.state = 'active'
              AND (s.expires_at IS NULL OR s.expires_at > statement_timestamp())
            LIMIT 1
            FOR SHARE SKIP LOCKED
        ) AS a
        CROSS JOIN LATERAL (
            SELECT 1 FROM /*schema*/processing_queue AS q
            WHERE q.ctid = head.row_id AND NOT q.running AND q.scheduled_at = head.due_at
            LIMIT 1
            FOR UPDATE SKIP LOCKED
        ) AS held
        LIMIT d.rows_max
    ) AS due
)
UPDATE /*schema*/processing_queue AS q
SET attempt_id = md5($7::uuid::text || q.guid::text)::uuid, attempts = q.attempts + 1,
    running = true, swept = false, began_at = statement_timestamp(),
    deadline_at = statement_timestamp() + p.timeout_us * interval '1 microsecond',
    scheduled_at = statement_timestamp()
        + least(p.timeout_us * interval '1 microsecond', $10::interval) + $9::interval,
    owner = $8::text
FROM picked AS p
WHERE q.ctid = p.row_id
RETURNING
    q.shard_id, p.id, q.guid, q.attempt_id, p.spec, p.due_at, q.began_at, q.deadline_at,
    p.created_at, q.attempts, p.occurrence_no, p.occurrence_at, p.expires_at, p.succeeded, p.failed,
    p.interrupted, p.consecutive_failures, p.consecutive_interruptions, p.occurrence_failures,
    p.last_attempt, q.queue, q.priority, p.series;

-- name: begin_lane shard-local
-- The same for one lane.
-- $1 shard, $2 queue, $3 priority, $4 lease guid (NULL: helper), $5 limit, $6 since,
-- $7 batch, $8 owner, $9 grace, $10 window, $11 silent, $12 newest first, $13 looked at in vain
WITH picked AS (
    SELECT
        head.row_id, head.due_at, a.id, a.spec, a.created_at, a.timeout_us,
        a.occurrence_no, a.occurrence_at, a.expires_at, a.succeeded, a.failed, a.interrupted,
        a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures,
        a.last_attempt, a.series, statement_timestamp() AS began_at,
        statement_timestamp() + a.timeout_us * interval '1 microsecond' AS deadline_at,
        statement_timestamp() + least(a.timeout_us * interval '1 microsecond', $10::interval)
            + $9::interval AS reserved_until
    FROM (
        (SELECT q.ctid AS row_id, q.guid, q.scheduled_at AS due_at
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = $1::int AND q.queue = $2::text AND q.priority = $3::smallint
          AND q.scheduled_at >= coalesce($6::timestamptz, '-infinity')
          AND q.scheduled_at <= statement_timestamp()
              - CASE WHEN $4::uuid IS NULL THEN interval '1 second' ELSE interval '0' END
          AND NOT q.running AND NOT $12::boolean
        ORDER BY q.scheduled_at
        LIMIT $5::int + $13::int)
        UNION ALL
        (SELECT q.ctid, q.guid, q.scheduled_at
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = $1::int AND q.queue = $2::text AND q.priority = $3::smallint
          AND q.scheduled_at <= statement_timestamp()
              - CASE WHEN $4::uuid IS NULL THEN interval '1 second' ELSE interval '0' END
          AND NOT q.running AND $12::boolean
        ORDER BY q.scheduled_at DESC
        LIMIT $5::int + $13::int)
    ) AS head
    CROSS JOIN LATERAL (
        SELECT s.*
        FROM /*schema*/scheduled_action AS s
        WHERE s.guid = head.guid AND s.state = 'active' /*one-shard: AND s.shard_id = $1*/
          AND (s.expires_at IS NULL OR s.expires_at > statement_timestamp())
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
            WHEN $4::uuid IS NOT NULL THEN l.lease_guid = $4::uuid
            ELSE l.lease_guid IS NULL OR l.heartbeat_at < statement_timestamp() - $11::interval
        END
        OFFSET 0
    )
    LIMIT $5::int
)
UPDATE /*schema*/processing_queue AS q
SET attempt_id = md5($7::uuid::text || q.guid::text)::uuid, attempts = q.attempts + 1,
    running = true, swept = false, began_at = p.began_at, deadline_at = p.deadline_at,
    scheduled_at = p.reserved_until, owner = $8::text
FROM picked AS p
WHERE q.ctid = p.row_id /*one-shard: AND q.shard_id = $1*/
RETURNING
    q.shard_id, p.id, q.guid, q.attempt_id, p.spec, p.due_at, q.began_at, q.deadline_at,
    p.created_at, q.attempts, p.occurrence_no, p.occurrence_at, p.expires_at, p.succeeded, p.failed,
    p.interrupted, p.consecutive_failures, p.consecutive_interruptions, p.occurrence_failures,
    p.last_attempt, q.queue, q.priority, p.series;

-- name: begin_next_due many-shards
-- The earliest row of each lane, running or not; if it was due a moment ago, also the earliest one
-- that was not.
-- $1 shards, $2 queues, $3 priorities, $4 since, $5 the moment
SELECT first.scheduled_at AS first_at, behind.scheduled_at AS behind_at,
       statement_timestamp() AS now
FROM unnest($1::int[], $2::text[], $3::smallint[], $4::timestamptz[])
    WITH ORDINALITY AS d (shard_id, queue, priority, since, place)
LEFT JOIN LATERAL (
    SELECT q.scheduled_at
    FROM /*schema*/processing_queue AS q
    WHERE q.shard_id = d.shard_id AND q.queue = d.queue AND q.priority = d.priority
      AND q.scheduled_at >= coalesce(d.since, '-infinity')
    ORDER BY q.scheduled_at
    LIMIT 1
) AS first ON true
LEFT JOIN LATERAL (
    SELECT q.scheduled_at
    FROM /*schema*/processing_queue AS q
    WHERE q.shard_id = d.shard_id AND q.queue = d.queue AND q.priority = d.priority
      AND q.scheduled_at > statement_timestamp() - $5::interval
      AND first.scheduled_at <= statement_timestamp() - $5::interval
    ORDER BY q.scheduled_at
    LIMIT 1
) AS behind ON true
ORDER BY d.place;

-- name: begin_next_due_lane shard-local
-- The same for one lane.
-- $1 shard, $2 queue, $3 priority, $4 since, $5 the moment
SELECT first.scheduled_at AS first_at, (
    SELECT min(q.scheduled_at)
    FROM /*schema*/processing_queue AS q
    WHERE q.shard_id = $1::int AND q.queue = $2::text AND q.priority = $3::smallint
      AND q.scheduled_at > statement_timestamp() - $5::interval
      AND first.scheduled_at <= statement_timestamp() - $5::interval
) AS behind_at, statement_timestamp() AS now
FROM (
    SELECT min(q.scheduled_at) AS scheduled_at
    FROM /*schema*/processing_queue AS q
    WHERE q.shard_id = $1::int AND q.queue = $2::text AND q.priority = $3::smallint
      AND q.scheduled_at >= coalesce($4::timestamptz, '-infinity')
) AS first;

-- name: begin_reached many-shards
-- Where the next look into a lane goes on, if more due rows stand there than were looked at.
-- $1 shards, $2 queues, $3 priorities, $4 since, $5 rows looked at
SELECT (
    SELECT q.scheduled_at
    FROM /*schema*/processing_queue AS q
    WHERE q.shard_id = d.shard_id AND q.queue = d.queue AND q.priority = d.priority
      AND q.scheduled_at >= coalesce(d.since, '-infinity')
      AND q.scheduled_at <= statement_timestamp() AND NOT q.running
    ORDER BY q.scheduled_at
    OFFSET d.looked_at
    LIMIT 1
) AS reached_at
FROM unnest($1::int[], $2::text[], $3::smallint[], $4::timestamptz[], $5::int[])
    WITH ORDINALITY AS d (shard_id, queue, priority, since, looked_at, place)
ORDER BY d.place;

-- name: begin_reached_lane shard-local
-- The same for one lane.
-- $1 shard, $2 queue, $3 priority, $4 since, $5 rows looked at
SELECT (
    SELECT q.scheduled_at
    FROM /*schema*/processing_queue AS q
    WHERE q.shard_id = $1::int AND q.queue = $2::text AND q.priority = $3::smallint
      AND q.scheduled_at >= coalesce($4::timestamptz, '-infinity')
      AND q.scheduled_at <= statement_timestamp() AND NOT q.running
    ORDER BY q.scheduled_at
    OFFSET $5::int
    LIMIT 1
) AS reached_at;

-- name: find_begun shard-local
-- Running rows that a batch began. When they had been due is not known any more: began_at instead.
-- $1 shards, $2 queues, $3 priorities, $4 batch
SELECT
    q.shard_id, a.id, q.guid, q.attempt_id, a.spec, q.began_at AS due_at, q.began_at,
    q.deadline_at,
    a.created_at, q.attempts, a.occurrence_no, a.occurrence_at, a.expires_at, a.succeeded, a.failed,
    a.interrupted, a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures,
    a.last_attempt, q.queue, q.priority, a.series
FROM unnest($1::int[], $2::text[], $3::smallint[]) AS d (shard_id, queue, priority)
CROSS JOIN LATERAL (
    SELECT r.*
    FROM /*schema*/processing_queue AS r
    WHERE r.shard_id = d.shard_id AND r.queue = d.queue AND r.priority = d.priority
      AND r.running AND r.attempt_id = md5($4::uuid::text || r.guid::text)::uuid
      /*one-shard: AND r.shard_id = $5*/
    OFFSET 0
) AS q
CROSS JOIN LATERAL (
    SELECT s.*
    FROM /*schema*/scheduled_action AS s
    WHERE s.guid = q.guid /*one-shard: AND s.shard_id = $5*/
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

-- name: list_lanes shard-local
-- Every lane of some shards and its earliest time, by leaping from lane to lane in the index.
-- $1 shards
WITH RECURSIVE lane AS (
    SELECT h.shard_id, f.queue, f.priority, f.scheduled_at
    FROM unnest($1::int[]) AS h (shard_id)
    CROSS JOIN LATERAL (
        SELECT q.queue, q.priority, q.scheduled_at
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = h.shard_id /*one-shard: AND q.shard_id = $2*/
        ORDER BY q.queue, q.priority, q.scheduled_at
        LIMIT 1
    ) AS f
    UNION ALL
    SELECT p.shard_id, n.queue, n.priority, n.scheduled_at
    FROM lane AS p
    CROSS JOIN LATERAL (
        SELECT q.queue, q.priority, q.scheduled_at
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = p.shard_id AND (q.queue, q.priority) > (p.queue, p.priority)
          /*one-shard: AND q.shard_id = $2*/
        ORDER BY q.queue, q.priority, q.scheduled_at
        LIMIT 1
    ) AS n
)
SELECT l.shard_id, l.queue, l.priority, l.scheduled_at FROM lane AS l;

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
            OFFSET 0
        )
    ) AS shards;

-- name: poll_shard shard-local
-- The shard, if it has incoming rows behind its mark. A cluster has no common snapshot to ask.
-- $1 shard, $2 mark, $3 how far marks lag behind
SELECT i.shard_id
FROM /*schema*/incoming_queue AS i
WHERE i.shard_id = $1::int
  AND i.created_at >= least($2::timestamptz, statement_timestamp() - $3::interval)
LIMIT 1;

-- name: list_lapsed_running shard-local
-- Attempts that outlived their reservation, with their actions. What somebody holds
-- just now is passed over: it is found again.
-- $1 shards, $2 limit, $3 rows to look at in a shard
SELECT
    q.shard_id, a.id, q.guid, q.attempt_id, a.spec, q.scheduled_at AS due_at, q.began_at,
    q.deadline_at,
    a.created_at, q.attempts, a.occurrence_no, a.occurrence_at, a.expires_at, a.succeeded, a.failed,
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
    q.deadline_at,
    a.created_at, q.attempts, a.occurrence_no, a.occurrence_at, a.expires_at, a.succeeded, a.failed,
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
    q.deadline_at,
    a.created_at, q.attempts, a.occurrence_no, a.occurrence_at, a.expires_at, a.succeeded, a.failed,
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

-- name: delete_stale shard-local
-- Remove due rows of old generations, and lapsed attempts of them. Changes take their rows with them;
-- what is left was being moved or attempted, or held by somebody, when its generation ended. A guid never comes back, so nothing can
-- happen between the look and the deletion. Only the oldest $3 rows of a lane are looked at: in a
-- backlog the others come later, as the head moves on.
-- $1 shards, $2 limit, $3 rows to look at in a lane
WITH RECURSIVE lane AS (
    SELECT h.shard_id, f.queue, f.priority
    FROM unnest($1::int[]) AS h (shard_id)
    CROSS JOIN LATERAL (
        SELECT q.queue, q.priority
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = h.shard_id /*one-shard: AND q.shard_id = $4*/
        ORDER BY q.queue, q.priority
        LIMIT 1
    ) AS f
    UNION ALL
    SELECT p.shard_id, n.queue, n.priority
    FROM lane AS p
    CROSS JOIN LATERAL (
        SELECT q.queue, q.priority
        FROM /*schema*/processing_queue AS q
        WHERE q.shard_id = p.shard_id AND (q.queue, q.priority) > (p.queue, p.priority)
          /*one-shard: AND q.shard_id = $4*/
        ORDER BY q.queue, q.priority
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

-- name: finish_delete_stale shard-local
-- The same for certain guids: an attempt ended whose generation is gone.
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
