-- name: open_is_installed
SELECT count(*) AS count FROM sqlite_schema WHERE type = 'table' AND name = 'installation';

-- name: migrate_install
INSERT INTO installation (
    only_row, id, shard_count, schema_version, floor, created_at, inode
)
VALUES (1, :id, :shard_count, :version, :floor, :now, :inode);

-- name: migrate_install_locks
INSERT INTO shard_lock (shard_id)
SELECT value FROM json_each(:shards);

-- name: migrate_record
INSERT INTO migration (version, name, applied_at) VALUES (:version, :name, :now);

-- name: migrate_set_version
UPDATE installation SET schema_version = :version;

-- name: open
SELECT id, shard_count, schema_version, floor, inode FROM installation;

-- name: adopt
UPDATE installation SET inode = :inode;

-- name: adopt_move
-- What came due must stand in the processing queue to be skipped.
INSERT INTO processing_queue (shard_id, guid, queue, priority, scheduled_at, attempts)
SELECT i.shard_id, i.guid, i.queue, i.priority, i.scheduled_at, a.attempts
FROM incoming_queue AS i
JOIN scheduled_action AS a ON a.shard_id = i.shard_id AND a.guid = i.guid
WHERE a.state = 'active'
ON CONFLICT DO NOTHING;

-- name: adopt_clear
DELETE FROM incoming_queue;

-- name: adopt_overdue
-- Due, or running in a worker that belonged to another database.
SELECT a.*, a.scheduled_at AS due_at, a.running AS is_running
FROM live_action AS a
WHERE a.state = 'active' AND (a.scheduled_at <= :now OR a.running = 1);

-- name: doctor_counters
SELECT 'counters', a.id,
    'attempts ' || q.attempts || ', ended ' || (a.succeeded + a.failed + a.interrupted)
    || ', running ' || q.running
FROM scheduled_action AS a
JOIN processing_queue AS q ON q.shard_id = a.shard_id AND q.guid = a.guid
WHERE q.attempts <> a.succeeded + a.failed + a.interrupted + q.running
UNION ALL
SELECT 'counters', id, 'recorded ' || attempts || ', ended ' || (succeeded + failed + interrupted)
FROM scheduled_action
WHERE attempts <> succeeded + failed + interrupted
UNION ALL
SELECT 'finished_counters', id,
    'attempts ' || attempts || ', ended ' || (succeeded + failed + interrupted)
FROM finished_action
WHERE attempts <> succeeded + failed + interrupted;

-- name: doctor_one_row
SELECT 'one_row', id, state || ' with ' || row_count || ' queue rows'
FROM (
    SELECT a.id, a.state,
        (SELECT count(*) FROM processing_queue AS q
            WHERE q.shard_id = a.shard_id AND q.guid = a.guid) + coalesce(i.row_count, 0) AS row_count
    FROM scheduled_action AS a
    LEFT JOIN (
        SELECT shard_id, guid, count(*) AS row_count FROM incoming_queue GROUP BY shard_id, guid
    ) AS i ON i.shard_id = a.shard_id AND i.guid = a.guid
)
WHERE row_count <> (state = 'active');

-- name: doctor_scheduled
SELECT 'scheduled', id, 'active without a due time'
FROM scheduled_action
WHERE state = 'active' AND scheduled_at IS NULL;

-- name: doctor_lock_rows
SELECT 'lock_rows', 'shard_lock', count(l.shard_id) || ' locks for ' || i.shard_count || ' shards'
FROM installation AS i
LEFT JOIN shard_lock AS l ON l.shard_id BETWEEN 0 AND i.shard_count - 1
GROUP BY i.only_row
HAVING count(l.shard_id) <> i.shard_count;

-- name: doctor_running
SELECT 'running', a.id, 'an attempt runs past its deadline'
FROM processing_queue AS q
JOIN scheduled_action AS a ON a.shard_id = q.shard_id AND a.guid = q.guid
WHERE q.running = 1 AND q.deadline_at < :overrun_before;

-- name: doctor_stale_rows
SELECT 'stale_rows', 'shard ' || q.shard_id, count(*) || ' due rows of generations that are gone'
FROM processing_queue AS q
JOIN shard_lock AS l ON l.shard_id = q.shard_id AND l.lease_guid IS NOT NULL
LEFT JOIN scheduled_action AS a ON a.guid = q.guid
WHERE a.guid IS NULL AND q.scheduled_at < :overrun_before
GROUP BY q.shard_id;

-- name: purge_finished
DELETE FROM finished_action
WHERE rowid IN (
    SELECT rowid FROM finished_action WHERE purge_at <= :now ORDER BY purge_at LIMIT :limit
);

-- name: purge_attempts
-- The log is written in order of time, so what is old stands at its head.
DELETE FROM attempt_log
WHERE began_at < :logged_before AND rowid IN (
    SELECT rowid FROM attempt_log ORDER BY rowid LIMIT :limit
);

-- name: purge_progress
DELETE FROM attempt_progress WHERE at < :reported_before;

-- name: purge_workers
DELETE FROM worker WHERE heartbeat_at < :silent_since;

-- name: purge_audit
-- It is written in order of time, so what is old stands at its head.
DELETE FROM audit
WHERE at < :audited_before AND entry_no IN (
    SELECT entry_no FROM audit ORDER BY entry_no LIMIT :limit
);

-- name: doctor_entity_rows
SELECT 'entity_row', q.entity_key, q.status || ' for ' || q.stage || ', but it does not live'
FROM stage_queue AS q
LEFT JOIN entity AS e ON e.entity_key = q.entity_key
WHERE e.doc IS NULL
UNION ALL
SELECT 'entity_row', f.entity_key, 'to be asked about, but it does not live'
FROM changed_entity AS f
LEFT JOIN entity AS e ON e.entity_key = f.entity_key
WHERE e.doc IS NULL OR e.epoch <> f.epoch;

-- name: doctor_entity_times
SELECT 'entity_time', entity_key, status || ' for ' || stage || ' without a time'
FROM stage_queue
WHERE (status = 'ready' AND ready_at IS NULL) OR (status = 'sleeping' AND timer_at IS NULL);

-- name: measure_pages
SELECT c.page_count, s.page_size, f.freelist_count
FROM pragma_page_count AS c, pragma_page_size AS s, pragma_freelist_count AS f;
