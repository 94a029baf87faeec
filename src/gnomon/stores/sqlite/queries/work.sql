-- name: poll
-- Which of these shards have incoming rows. SQLite leaves no dead rows, so marks are not needed.
SELECT s.value AS shard FROM json_each(:shards) AS s
WHERE EXISTS (SELECT 1 FROM incoming_queue AS i WHERE i.shard_id = s.value);

-- name: is_mixed
-- One row for each kind of row among the oldest of a shard.
SELECT DISTINCT i.queue, i.priority
FROM (
    SELECT queue, priority FROM incoming_queue
    WHERE shard_id = :shard
    ORDER BY created_at, guid
    LIMIT :limit
) AS i
LIMIT 2;

-- name: move_head
-- The fence of move, and the last of the oldest rows: nothing comes back without the lease. A
-- helper has none: it takes what is not new in a shard that is free, or whose owner keeps silent.
WITH head AS (
    SELECT i.created_at, i.guid
    FROM incoming_queue AS i
    WHERE i.shard_id = :shard AND i.created_at < :created_before
        AND EXISTS (
            SELECT 1 FROM shard_lock AS l
            WHERE l.shard_id = :shard
                AND CASE WHEN :lease_guid IS NOT NULL THEN l.lease_guid = :lease_guid
                    ELSE l.lease_guid IS NULL OR l.heartbeat_at < :silent_since END
        )
    ORDER BY i.created_at, i.guid
    LIMIT :limit
)
SELECT created_at, guid, (SELECT count(*) FROM head) AS count
FROM head
ORDER BY created_at DESC, guid DESC
LIMIT 1;

-- name: move_newest
-- With the same fence: what is due among the newest rows and of some queues, as the first and the
-- last guid of each moment.
SELECT created_at, min(guid) AS first_guid, max(guid) AS guid, count(*) AS count
FROM (
    SELECT newest.created_at, newest.guid
    FROM (
        SELECT i.created_at, i.guid, i.scheduled_at, i.queue
        FROM incoming_queue AS i
        WHERE i.shard_id = :shard
            AND EXISTS (
                SELECT 1 FROM shard_lock AS l
                WHERE l.shard_id = :shard AND l.lease_guid = :lease_guid
            )
        ORDER BY i.created_at DESC, i.guid DESC
        LIMIT :limit
    ) AS newest
    WHERE newest.scheduled_at <= :now
        AND newest.queue IN (SELECT value FROM json_each(:queues))
    LIMIT :room
)
GROUP BY created_at;

-- name: move_insert
-- Current generations only; a row that is there already stays as it is.
INSERT INTO processing_queue (shard_id, guid, queue, priority, scheduled_at, attempts)
SELECT i.shard_id, i.guid, i.queue, i.priority, i.scheduled_at, a.attempts
FROM incoming_queue AS i
CROSS JOIN scheduled_action AS a
WHERE i.shard_id = :shard AND (i.created_at, i.guid) >= (:first_at, :first_guid)
    AND (i.created_at, i.guid) <= (:last_at, :last_guid)
    AND a.shard_id = i.shard_id AND a.guid = i.guid AND a.state = 'active'
ON CONFLICT DO NOTHING;

-- name: move_lanes
SELECT queue, priority, min(scheduled_at) AS earliest
FROM incoming_queue
WHERE shard_id = :shard AND (created_at, guid) >= (:first_at, :first_guid)
    AND (created_at, guid) <= (:last_at, :last_guid)
GROUP BY queue, priority;

-- name: move_delete
DELETE FROM incoming_queue
WHERE shard_id = :shard AND (created_at, guid) >= (:first_at, :first_guid)
    AND (created_at, guid) <= (:last_at, :last_guid);

-- name: move_and_begin_heads
-- The fence of move for many shards at once: how many of the oldest rows each has, and the last of
-- them. `leases` has the lease of each shard, 16 bytes. All that is about many shards is said in
-- one statement: Python's lock is given up for each, and comes back late where slots are at work.
SELECT json_group_array(json_array(
    l.shard_id,
    (
        SELECT count(*) FROM (
            SELECT 1 FROM incoming_queue AS i WHERE i.shard_id = l.shard_id LIMIT :limit
        )
    ),
    json(coalesce(
        (
            SELECT json_array(i.created_at, hex(i.guid)) FROM incoming_queue AS i
            WHERE i.shard_id = l.shard_id
            ORDER BY i.created_at, i.guid
            LIMIT 1 OFFSET :limit - 1
        ),
        (
            SELECT json_array(i.created_at, hex(i.guid)) FROM incoming_queue AS i
            WHERE i.shard_id = l.shard_id
            ORDER BY i.created_at DESC, i.guid DESC
            LIMIT 1
        )
    ))
))
FROM json_each(:shards) AS s
CROSS JOIN shard_lock AS l
WHERE l.shard_id = s.value AND l.lease_guid = substr(:leases, s.key * 16 + 1, 16)
    AND EXISTS (SELECT 1 FROM incoming_queue AS i WHERE i.shard_id = l.shard_id);

-- name: move_and_begin_due
-- What of the oldest rows is due and never was attempted: it goes the short way, into the queue as
-- a running row. A row that is there already stays as it is, and what was attempted before goes the
-- long way. `ends` has each shard and the time of its last row, `guids` the guid of that, 16 bytes.
SELECT json_group_array(json_array(
    shard_id, queue, priority, hex(guid), scheduled_at, id, timeout_us, occurrence_no,
    occurrence_at, expires_at, spec, nullif(hex(series), '')
))
FROM (
    SELECT
        i.shard_id, i.queue, i.priority, i.guid, i.scheduled_at, a.id, a.timeout_us,
        a.occurrence_no, a.occurrence_at, a.expires_at, CAST(a.spec AS TEXT) AS spec, a.series
    FROM json_each(:ends) AS s
    CROSS JOIN incoming_queue AS i
    CROSS JOIN scheduled_action AS a
    WHERE i.shard_id = json_extract(s.value, '$[0]')
        AND (i.created_at, i.guid)
            <= (json_extract(s.value, '$[1]'), substr(:guids, s.key * 16 + 1, 16))
        AND i.scheduled_at <= :now
        AND a.shard_id = i.shard_id AND a.guid = i.guid AND a.state = 'active' AND a.attempts = 0
        AND (a.expires_at IS NULL OR a.expires_at > :now)
        AND NOT EXISTS (SELECT 1 FROM processing_queue AS p WHERE p.guid = i.guid)
);

-- name: move_and_begin_stamp
-- They run: `told` has the shard of each, times 2 to the power of 40, and its timeout; `packed` its
-- guid and attempt id, 16 bytes and 16 bytes. A row that came meanwhile would end it all: the guid
-- is the key.
INSERT INTO processing_queue (
    shard_id, guid, queue, priority, scheduled_at, attempt_id, attempts, running, began_at,
    deadline_at, owner
)
SELECT
    s.value >> 40, substr(:packed, s.key * 32 + 1, 16), :queue, :priority,
    :now + min(s.value & 0xFFFFFFFFFF, :window_us) + :grace_us,
    substr(:packed, s.key * 32 + 17, 16), 1, 1, :now, :now + (s.value & 0xFFFFFFFFFF), :owner
FROM json_each(:told) AS s;

-- name: move_and_begin_delete
-- The oldest rows of many shards; `ends` and `guids` as above. The guid comes first because SQLite
-- looks rows up by two columns only if the three are named in the order of the key.
DELETE FROM incoming_queue
WHERE (guid, created_at, shard_id) IN (
    SELECT i.guid, i.created_at, i.shard_id
    FROM json_each(:ends) AS s
    CROSS JOIN incoming_queue AS i
    WHERE i.shard_id = json_extract(s.value, '$[0]')
        AND (i.created_at, i.guid)
            <= (json_extract(s.value, '$[1]'), substr(:guids, s.key * 16 + 1, 16))
);

-- name: begin_due
-- The fence of begin: the lease, due, not running, the current generation, active, not expired. A
-- helper has no lease: it begins overdue rows of a shard that is free, or whose owner keeps silent.
-- A guest has none either, and does not mind the owner.
-- All rows come as one JSON text: a row at a time would hand Python's lock over for each of them.
-- The spec stays a text in it: one that was spoilt by others must not spoil the rows beside it.
-- A bounded number of rows is looked at in vain: what expired or was left behind may stand there by
-- the million. `/*order*/` is DESC where the head of the lane is found blocked by them.
SELECT json_group_array(json_array(
    hex(guid), scheduled_at, attempts, id, timeout_us, occurrence_no, occurrence_at,
    expires_at, succeeded, failed, interrupted, consecutive_failures, consecutive_interruptions,
    occurrence_failures, last_attempt, spec, nullif(hex(series), '')
))
FROM (
    SELECT
        head.guid, head.scheduled_at, head.attempts, a.id, a.timeout_us, a.occurrence_no,
        a.occurrence_at, a.expires_at, a.succeeded, a.failed, a.interrupted,
        a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures,
        a.last_attempt, CAST(a.spec AS TEXT) AS spec, a.series
    FROM shard_lock AS l
    CROSS JOIN (
        SELECT p.shard_id, p.guid, p.scheduled_at, p.attempts
        FROM processing_queue AS p
        WHERE p.shard_id = :shard AND p.queue = :queue AND p.priority = :priority
            AND p.need = :need AND p.scheduled_at >= :since
            AND p.scheduled_at <= :due_until AND p.running = 0
        ORDER BY p.scheduled_at /*order*/
        LIMIT :limit + :looked_at
    ) AS head
    CROSS JOIN scheduled_action AS a
    WHERE l.shard_id = :shard
        AND CASE WHEN :lease_guid IS NOT NULL THEN l.lease_guid = :lease_guid
            ELSE :is_guest OR l.lease_guid IS NULL OR l.heartbeat_at < :silent_since END
        AND a.shard_id = head.shard_id AND a.guid = head.guid AND a.state = 'active'
        AND (a.expires_at IS NULL OR a.expires_at > max(:now, head.scheduled_at))
    LIMIT :limit
);

-- name: begin_stamp
-- Compare-and-set on what was read: the attempt, and its reservation as the new time. `seen` has
-- the times as read, `packed` the guid and the new attempt id of each, 16 bytes and 16 bytes. The
-- plus signs keep the planner from walking the queue instead of looking each guid up.
UPDATE processing_queue AS q SET
    attempt_id = substr(:packed, s.key * 32 + 17, 16), attempts = q.attempts + 1, running = 1,
    swept = 0, began_at = max(:now, s.value), deadline_at = max(:now, s.value) + a.timeout_us,
    scheduled_at = max(:now, s.value) + min(a.timeout_us, :window_us) + :grace_us, owner = :owner
FROM json_each(:seen) AS s
CROSS JOIN scheduled_action AS a
WHERE q.guid = substr(:packed, s.key * 32 + 1, 16)
    AND +q.running = 0 AND +q.scheduled_at = s.value
    AND a.guid = substr(:packed, s.key * 32 + 1, 16);

-- name: begin_next_due
SELECT scheduled_at FROM processing_queue
WHERE shard_id = :shard AND queue = :queue AND priority = :priority AND need = :need
    AND scheduled_at > :after
ORDER BY scheduled_at
LIMIT 1;

-- name: begin_reached
-- Where the next look into a lane goes on, if more due rows stand there than were looked at.
SELECT scheduled_at FROM processing_queue
WHERE shard_id = :shard AND queue = :queue AND priority = :priority AND need = :need
    AND scheduled_at >= :since AND scheduled_at <= :now AND running = 0
ORDER BY scheduled_at
LIMIT 1 OFFSET :looked_at;

-- name: find_begun
SELECT json_group_array(json_array(
    hex(q.guid), q.began_at, q.attempts - 1, a.id, a.timeout_us, a.occurrence_no,
    a.occurrence_at, a.expires_at, a.succeeded, a.failed, a.interrupted, a.consecutive_failures,
    a.consecutive_interruptions, a.occurrence_failures, a.last_attempt, CAST(a.spec AS TEXT),
    nullif(hex(a.series), ''), hex(q.attempt_id), q.need
))
FROM processing_queue AS q
JOIN scheduled_action AS a ON a.shard_id = q.shard_id AND a.guid = q.guid
WHERE q.shard_id = :shard AND q.running = 1;

-- name: confirm
-- Of armed attempts those that do not stand: the row or the action knows them no more, or they
-- expired. `shards` has the shard of each, `packed` its guid and its attempt id.
SELECT key, is_gone FROM (
    SELECT
        s.key, q.guid IS NULL OR a.guid IS NULL AS is_gone, a.expires_at <= :now AS is_expired
    FROM json_each(:shards) AS s
    LEFT JOIN processing_queue AS q ON q.guid = substr(:packed, s.key * 32 + 1, 16)
        AND +q.attempt_id = substr(:packed, s.key * 32 + 17, 16) AND +q.running = 1
    LEFT JOIN scheduled_action AS a ON a.guid = substr(:packed, s.key * 32 + 1, 16)
        AND +a.state = 'active'
)
WHERE is_gone OR is_expired;

-- name: extend
UPDATE processing_queue SET scheduled_at = :reserved_until
WHERE shard_id = :shard AND guid = :guid AND attempt_id = :attempt_id AND running = 1
    AND EXISTS (SELECT 1 FROM scheduled_action AS a WHERE a.shard_id = :shard AND a.guid = :guid);

-- name: list_cancelling
-- By an index of its own, in which there is next to nothing.
SELECT shard_id, attempt_id FROM attempt_log
WHERE outcome = 'cancelling' AND owner = :owner AND began_at >= :since;

-- name: list_lanes_after
-- Lanes one by one, each found by one step in the index, with its earliest time. The time is part
-- of what is compared: without it SQLite goes to the first row of the lane before, and over all.
SELECT queue, priority, need, scheduled_at FROM processing_queue
WHERE shard_id = :shard
    AND (queue, priority, need, scheduled_at) > (:queue, :priority, :need, 9223372036854775807)
ORDER BY queue, priority, need, scheduled_at
LIMIT 1;

-- name: list_needs_after
-- Needs one by one, each found by one step in the index.
SELECT need FROM processing_queue
WHERE need <> '' AND need > :need
ORDER BY need
LIMIT 1;

-- name: list_need_lanes_after
-- Lanes of a need one by one, each with its earliest time.
SELECT shard_id, queue, priority, need, scheduled_at FROM processing_queue
WHERE need <> '' AND need = :need
    AND (shard_id, queue, priority, scheduled_at)
        > (:shard, :queue, :priority, 9223372036854775807)
ORDER BY shard_id, queue, priority, scheduled_at
LIMIT 1;

-- name: count_due
SELECT count(*) AS count
FROM (
    SELECT 1 FROM processing_queue
    WHERE shard_id = :shard AND queue = :queue AND priority = :priority AND need = :need
        AND scheduled_at <= :now AND running = 0
    LIMIT :limit
);

-- name: end_pauses_find
-- Whether a pause has ended in a shard, behind a place. Most often none has.
SELECT 1 FROM scheduled_action
WHERE shard_id = :shard AND paused_until <= :now AND (paused_until, id) > (:until, :id)
LIMIT 1;

-- name: end_pauses_take
-- The first pauses that have ended in a shard, behind a place, if its lease is the given one. A
-- helper has none: the shard must be free, or its owner keep silent.
SELECT a.* FROM live_action AS a
WHERE a.shard_id = :shard AND a.paused_until <= :now AND (a.paused_until, a.id) > (:until, :id)
    AND a.state = 'paused' AND EXISTS (
        SELECT 1 FROM shard_lock AS l
        WHERE l.shard_id = :shard AND CASE WHEN :silent_since IS NULL THEN l.lease_guid = :lease_guid
            ELSE l.lease_guid IS NULL OR l.heartbeat_at < :silent_since END
    )
ORDER BY a.paused_until, a.id
LIMIT :limit;

-- name: delete_stale_running
-- Lapsed attempts of old generations.
DELETE FROM processing_queue
WHERE guid IN (
    SELECT h.guid FROM (
        SELECT q.guid FROM processing_queue AS q INDEXED BY processing_queue_running_idx
        WHERE q.shard_id = :shard AND q.running = 1 AND q.scheduled_at <= :now
        ORDER BY q.scheduled_at
        LIMIT :limit
    ) AS h
    WHERE NOT EXISTS (
        SELECT 1 FROM scheduled_action AS a WHERE a.shard_id = :shard AND a.guid = h.guid
    )
);

-- name: delete_stale
-- Rows of old generations at the head of a lane. What is current leaves the head sooner or later,
-- so a bounded look finds all of them in the end.
DELETE FROM processing_queue
WHERE guid IN (
    SELECT h.guid FROM (
        SELECT q.guid FROM processing_queue AS q
        WHERE q.shard_id = :shard AND q.queue = :queue AND q.priority = :priority
            AND q.need = :need AND q.scheduled_at <= :now AND q.running = 0
        ORDER BY q.scheduled_at
        LIMIT :limit
    ) AS h
    WHERE NOT EXISTS (
        SELECT 1 FROM scheduled_action AS a WHERE a.shard_id = :shard AND a.guid = h.guid
    )
);

-- name: list_lapsed_running
SELECT
    a.*, q.scheduled_at AS due_at, q.running AS is_running
FROM processing_queue AS q INDEXED BY processing_queue_running_idx
CROSS JOIN live_action AS a
WHERE q.shard_id = :shard AND q.running = 1 AND q.scheduled_at <= :now
    AND a.shard_id = q.shard_id AND a.guid = q.guid
    AND EXISTS (
        SELECT 1 FROM shard_lock AS l WHERE l.shard_id = :shard AND l.lease_guid = :lease_guid
    )
ORDER BY q.scheduled_at
LIMIT :limit;

-- name: list_orphans
-- Running attempts of some owners, whatever their reservations say.
SELECT
    a.*, q.scheduled_at AS due_at, q.running AS is_running
FROM processing_queue AS q INDEXED BY processing_queue_running_idx
CROSS JOIN live_action AS a
WHERE q.running = 1 AND q.shard_id IN (SELECT value FROM json_each(:shards))
    AND q.owner IN (SELECT value FROM json_each(:owners))
    AND (:after IS NULL OR q.guid > :after)
    AND a.shard_id = q.shard_id AND a.guid = q.guid
ORDER BY q.guid
LIMIT :limit;

-- name: list_lapsed_expired
SELECT
    a.*, a.scheduled_at AS due_at, a.running AS is_running
FROM live_action AS a
WHERE a.shard_id = :shard AND a.expires_at <= :now AND a.scheduled_at <= :now AND a.running = 0
    AND EXISTS (
        SELECT 1 FROM shard_lock AS l WHERE l.shard_id = :shard AND l.lease_guid = :lease_guid
    )
ORDER BY a.expires_at
LIMIT :limit;
