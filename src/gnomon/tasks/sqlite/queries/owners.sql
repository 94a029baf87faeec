-- name: objects
SELECT name FROM sqlite_master;

-- name: table_columns
SELECT name FROM pragma_table_info(:table_name);

-- name: lock
SELECT lease_guid, owner, process, beat, heartbeat_at FROM gnomon_task_owner
WHERE table_name = :table_name;

-- name: acquire
INSERT INTO gnomon_task_owner (table_name, lease_guid, owner, process, beat, heartbeat_at)
VALUES (:table_name, :lease_guid, :owner, :process, 0, :now)
ON CONFLICT (table_name) DO UPDATE SET
    lease_guid = excluded.lease_guid, owner = excluded.owner, process = excluded.process, beat = 0,
    heartbeat_at = :now;

-- name: beat
UPDATE gnomon_task_owner SET beat = beat + 1, heartbeat_at = :now
WHERE table_name = :table_name AND lease_guid = :lease_guid;

-- name: release
UPDATE gnomon_task_owner SET lease_guid = NULL, owner = NULL, process = NULL
WHERE table_name = :table_name AND lease_guid = :lease_guid;
