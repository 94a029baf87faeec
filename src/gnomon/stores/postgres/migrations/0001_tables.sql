-- 0001: the tables.
-- Changes: everything is new.
-- The previous release: there is none.
--
-- Every key leads with shard_id, so that all tables can be distributed by it (Citus) and one
-- action, its queue rows and its lock live together. No defaults that are computed, no triggers,
-- no sequences: ids come from the program. Fixed-width columns stand first: no padding.
--
-- Each index answers one kind of question and is of no use for another: by guid, by id, by lane. The
-- queues are often empty when statistics are taken, and to a planner that believes in one row all
-- indexes with a fitting column are the same; so the indexes by guid begin with it, and what is
-- looked up by guid is looked up by that alone. See also queries/work.sql. On Citus the shard must be
-- named besides; among equals the newest index is taken, so the index by guid is made last.

CREATE TABLE /*schema*/migration (
    version    int         NOT NULL,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL,
    CONSTRAINT migration_pkey PRIMARY KEY (version)
);

CREATE TABLE /*schema*/installation (
    id                uuid        NOT NULL,
    created_at        timestamptz NOT NULL,
    shard_count       int         NOT NULL,
    schema_version    int         NOT NULL,
    floor             int         NOT NULL,
    system_identifier bigint      NOT NULL,
    timeline          bigint      NOT NULL,
    database_oid      bigint      NOT NULL,
    limits_version    bigint      NOT NULL DEFAULT 0,
    CONSTRAINT installation_pkey PRIMARY KEY (id)
);

CREATE TABLE /*schema*/worker (
    worker_id    uuid        NOT NULL,
    started_at   timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    shards       int         NOT NULL,
    owner        text        NOT NULL,
    CONSTRAINT worker_pkey PRIMARY KEY (worker_id)
) WITH (fillfactor = 10);

-- Updated every two seconds: room on the page keeps the updates out of the index.
CREATE TABLE /*schema*/shard_lock (
    beat                     bigint NOT NULL,
    lease_guid               uuid,
    heartbeat_at             timestamptz,
    last_processing_start_at timestamptz,
    incoming_mark            timestamptz,
    shard_id                 int    NOT NULL,
    owner                    text,
    CONSTRAINT shard_lock_pkey PRIMARY KEY (shard_id)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE /*schema*/scheduled_action (
    guid                      uuid        NOT NULL,
    created_at                timestamptz NOT NULL,
    updated_at                timestamptz NOT NULL,
    scheduled_at              timestamptz,
    occurrence_at             timestamptz NOT NULL,
    expires_at                timestamptz,
    occurrence_no             bigint      NOT NULL,
    timeout_us                bigint      NOT NULL CHECK (timeout_us BETWEEN 1 AND 86400000000),
    retention_us              bigint      NOT NULL CHECK (retention_us BETWEEN 0 AND 31622400000000),
    shard_id                  int         NOT NULL,
    attempts                  int         NOT NULL,
    succeeded                 int         NOT NULL,
    failed                    int         NOT NULL,
    interrupted               int         NOT NULL,
    consecutive_failures      int         NOT NULL,
    consecutive_interruptions int         NOT NULL,
    occurrence_failures       int         NOT NULL,
    priority                  smallint    NOT NULL,
    keyed                     boolean     NOT NULL,
    state                     text        NOT NULL,
    queue                     text COLLATE "C" NOT NULL,
    id                        text COLLATE "C" NOT NULL,
    spec                      text        NOT NULL,
    last_attempt              text,
    creator                   text COLLATE "C",
    CONSTRAINT scheduled_action_state_check CHECK (state IN ('active', 'paused'))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- Most actions never expire and are not in it.
CREATE INDEX scheduled_action_expiry_idx
    ON /*schema*/scheduled_action (shard_id, expires_at) WHERE expires_at IS NOT NULL;

-- Counts what a token's name has alive; what was created without a token is not in it.
CREATE INDEX scheduled_action_creator_idx
    ON /*schema*/scheduled_action (creator) WHERE creator IS NOT NULL;

ALTER TABLE /*schema*/scheduled_action
    ADD CONSTRAINT scheduled_action_pkey PRIMARY KEY (shard_id, id);

CREATE INDEX scheduled_action_guid_idx ON /*schema*/scheduled_action (guid);

CREATE TABLE /*schema*/incoming_queue (
    created_at   timestamptz NOT NULL,
    guid         uuid        NOT NULL,
    scheduled_at timestamptz NOT NULL,
    shard_id     int         NOT NULL,
    priority     smallint    NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    CONSTRAINT incoming_queue_pkey PRIMARY KEY (shard_id, created_at, guid)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

CREATE TABLE /*schema*/processing_queue (
    guid         uuid        NOT NULL,
    scheduled_at timestamptz NOT NULL,
    attempt_id   uuid,
    began_at     timestamptz,
    deadline_at  timestamptz,
    shard_id     int         NOT NULL,
    attempts     int         NOT NULL,
    priority     smallint    NOT NULL,
    running      boolean     NOT NULL,
    swept        boolean     NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    owner        text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

CREATE INDEX processing_queue_lane_idx
    ON /*schema*/processing_queue (shard_id, queue, priority, scheduled_at);

-- For the sweeper: attempts whose reservation passed, without walking over a backlog.
CREATE INDEX processing_queue_running_idx
    ON /*schema*/processing_queue (shard_id, scheduled_at) WHERE running;

ALTER TABLE /*schema*/processing_queue
    ADD CONSTRAINT processing_queue_pkey PRIMARY KEY (guid, shard_id);

CREATE TABLE /*schema*/finished_action (
    guid                      uuid        NOT NULL,
    created_at                timestamptz NOT NULL,
    updated_at                timestamptz NOT NULL,
    finished_at               timestamptz NOT NULL,
    purge_at                  timestamptz NOT NULL,
    occurrence_at             timestamptz NOT NULL,
    began_at                  timestamptz,
    attempt_id                uuid,
    occurrence_no             bigint      NOT NULL,
    shard_id                  int         NOT NULL,
    attempts                  int         NOT NULL,
    succeeded                 int         NOT NULL,
    failed                    int         NOT NULL,
    interrupted               int         NOT NULL,
    consecutive_failures      int         NOT NULL,
    consecutive_interruptions int         NOT NULL,
    occurrence_failures       int         NOT NULL,
    priority                  smallint    NOT NULL,
    keyed                     boolean     NOT NULL,
    state                     text        NOT NULL,
    queue                     text COLLATE "C" NOT NULL,
    id                        text COLLATE "C" NOT NULL,
    spec                      text        NOT NULL,
    last_attempt              text,
    reason                    text,
    CONSTRAINT finished_action_state_check
        CHECK (state IN ('done', 'dead', 'cancelled', 'expired'))
) PARTITION BY RANGE (finished_at);

-- What operators look for; the ordinary success pays nothing for it.
CREATE INDEX finished_action_trouble_idx
    ON /*schema*/finished_action (shard_id, id) WHERE state <> 'done';

-- Tells the janitor whether a day is over, for next to nothing at each insert.
CREATE INDEX finished_action_purge_idx ON /*schema*/finished_action USING brin (purge_at);

ALTER TABLE /*schema*/finished_action
    ADD CONSTRAINT finished_action_pkey PRIMARY KEY (shard_id, id, guid, finished_at);

CREATE INDEX finished_action_guid_idx ON /*schema*/finished_action (guid);

CREATE TABLE /*schema*/finished_action_default PARTITION OF /*schema*/finished_action DEFAULT;

CREATE TABLE /*schema*/attempt_log (
    guid          uuid        NOT NULL,
    attempt_id    uuid        NOT NULL,
    began_at      timestamptz NOT NULL,
    ended_at      timestamptz,
    occurrence_no bigint      NOT NULL,
    shard_id      int         NOT NULL,
    attempt_no    int         NOT NULL,
    id            text COLLATE "C" NOT NULL,
    outcome       text        NOT NULL,
    error         text,
    answer        text,
    owner         text
) PARTITION BY RANGE (began_at);

CREATE INDEX attempt_log_id_idx ON /*schema*/attempt_log (shard_id, id, began_at);

ALTER TABLE /*schema*/attempt_log
    ADD CONSTRAINT attempt_log_pkey PRIMARY KEY (attempt_id, shard_id, began_at);

CREATE TABLE /*schema*/attempt_log_default PARTITION OF /*schema*/attempt_log DEFAULT;

-- Who may call. Rows are never removed: a server that needs tokens must not forget that it does.
CREATE TABLE /*schema*/token (
    token_id   uuid        NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    rate       double precision,
    live_max   int,
    digest     bytea       NOT NULL,
    name       text COLLATE "C" NOT NULL,
    scopes     text[]      NOT NULL,
    CONSTRAINT token_pkey PRIMARY KEY (token_id),
    CONSTRAINT token_digest_key UNIQUE (digest)
);

CREATE INDEX token_name_idx ON /*schema*/token (name, created_at);

-- Who changed what, written by the change's own transaction. No key: nothing ever looks one up, and
-- an insert here must never be what a change fails on.
CREATE TABLE /*schema*/audit (
    at       timestamptz NOT NULL,
    guid     uuid        NOT NULL,
    shard_id int         NOT NULL,
    count    int         NOT NULL,
    verb     text        NOT NULL,
    actor    text        NOT NULL,
    id       text        NOT NULL
) PARTITION BY RANGE (at);

CREATE INDEX audit_at_idx ON /*schema*/audit (at);

CREATE TABLE /*schema*/audit_default PARTITION OF /*schema*/audit DEFAULT;

-- What may happen at once and how often. Its row is locked while the parallelism is shared out.
CREATE TABLE /*schema*/work_limit (
    rate     double precision,
    parallel int,
    burst    int,
    kind     text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    CONSTRAINT work_limit_pkey PRIMARY KEY (kind, name),
    CONSTRAINT work_limit_kind_check CHECK (kind IN ('queue', 'target', 'stage'))
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- How much of a limit each worker may use, as it was told when it asked last.
CREATE TABLE /*schema*/limit_grant (
    worker_id  uuid        NOT NULL,
    asked_at   timestamptz NOT NULL,
    since      timestamptz NOT NULL,
    wanted     int         NOT NULL,
    counted    int         NOT NULL,
    allowed    int         NOT NULL,
    is_waiting boolean     NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    CONSTRAINT limit_grant_pkey PRIMARY KEY (kind, name, worker_id)
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- The way in by SQL (docs/reference/sql.md), for plain PostgreSQL. Who calls needs no right on any
-- table: the functions have their owner's, and nobody may call them until `grant_sql` says so.

CREATE FUNCTION /*schema*/crc32(name text) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bytes bytea := convert_to(name, 'UTF8');
    crc bigint := 4294967295;
BEGIN
    FOR place IN 0 .. length(bytes) - 1 LOOP
        crc := crc # get_byte(bytes, place);
        FOR step IN 1 .. 8 LOOP
            crc := (crc >> 1) # (3988292384 * (crc & 1));
        END LOOP;
    END LOOP;
    RETURN crc # 4294967295;
END
$$;

-- A stored spec, NULL if it is no JSON: one bad row must not hide the others.
CREATE FUNCTION /*schema*/spec_json(spec text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN spec::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END
$$;

CREATE FUNCTION /*schema*/refuse(field text, rule text, value text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '%: % (got %)', field, rule, coalesce(left(value, 100), 'NULL')
        USING ERRCODE = '22023';
END
$$;

CREATE FUNCTION /*schema*/check_fields(field text, given jsonb, kinds jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text;
    kind text;
BEGIN
    IF given IS NULL OR jsonb_typeof(given) <> 'object' THEN
        PERFORM /*schema*/refuse(field, 'must be an object', given::text);
    END IF;
    FOR name, kind IN SELECT e.key, jsonb_typeof(e.value) FROM jsonb_each(given) AS e LOOP
        IF NOT kinds ? name THEN
            PERFORM /*schema*/refuse(field || '.' || name, 'there is no such field here', kind);
        ELSIF kinds ->> name <> 'any' AND NOT kind = ANY (string_to_array(kinds ->> name, '|')) THEN
            PERFORM /*schema*/refuse(field || '.' || name, 'must be: ' || (kinds ->> name), kind);
        END IF;
    END LOOP;
END
$$;

CREATE FUNCTION /*schema*/check_texts(field text, given jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT e.key FROM jsonb_each(coalesce(given, '{}')) AS e
        WHERE jsonb_typeof(e.value) <> 'string'
    LOOP
        PERFORM /*schema*/refuse(field || '.' || name, 'must be a string', given ->> name);
    END LOOP;
END
$$;

-- Seconds out of a number, or out of a text that PostgreSQL reads as an interval.
CREATE FUNCTION /*schema*/seconds_of(field text, given jsonb, from_s numeric, to_s numeric)
RETURNS numeric
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seconds numeric;
BEGIN
    IF jsonb_typeof(given) = 'number' THEN
        seconds := round((given #>> '{}')::numeric, 6);
    ELSE
        BEGIN
            seconds := extract(epoch FROM (given #>> '{}')::interval);
        EXCEPTION WHEN data_exception THEN
            PERFORM /*schema*/refuse(field, 'must be a duration such as 30 or "5m"', given::text);
        END;
    END IF;
    IF seconds NOT BETWEEN from_s AND to_s THEN
        PERFORM /*schema*/refuse(
            field, format('must be between %s and %s seconds', from_s, to_s), given::text);
    END IF;
    RETURN seconds;
END
$$;

CREATE FUNCTION /*schema*/schedule(
    task_type text, payload jsonb, execute_at timestamptz DEFAULT NULL, id text DEFAULT NULL,
    max_attempts int DEFAULT 3, options jsonb DEFAULT '{}'
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    present timestamptz := clock_timestamp();
    utc text := 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"';
    kinds jsonb := '{
        "http": {"method": "string", "url": "string", "headers": "object", "body": "string|null",
                 "json": "any", "success": "array"},
        "rabbitmq": {"target": "string", "routing_key": "string", "exchange": "string",
                     "body": "string|null", "json": "any", "headers": "object",
                     "content_type": "string|null"},
        "kafka": {"target": "string", "topic": "string", "key": "string|null",
                  "value": "string|null", "json": "any", "headers": "object"},
        "python": {"function": "string", "args": "array", "kwargs": "object"}
    }';
    needed jsonb := '{"http": ["method", "url"], "rabbitmq": ["target", "routing_key"],
                      "kafka": ["target", "topic"], "python": ["function"]}';
    made uuid;
    name text := schedule.id;
    starts timestamptz := coalesce(schedule.execute_at, present);
    given jsonb := coalesce(schedule.options, '{}');
    retry jsonb;
    timeout_s numeric := 15;
    retention_s numeric := 604800;
    least_s numeric := 1;
    most_s numeric := 1;
    ends timestamptz;
    queue_name text;
    rank numeric;
    item text;
    spec jsonb;
    shard int;
BEGIN
    made := overlay(
        overlay(
            encode(uuid_send(gen_random_uuid()), 'hex')
            PLACING lpad(to_hex(floor(extract(epoch FROM present) * 1000)::bigint), 12, '0')
            FROM 1 FOR 12
        ) PLACING '7' FROM 13 FOR 1
    )::uuid;
    name := coalesce(name, made::text);
    IF name !~ '^[A-Za-z0-9._:@-]{1,200}$' OR name IN ('.', '..') THEN
        PERFORM /*schema*/refuse(
            'id', 'must be 1 to 200 characters out of A-Z a-z 0-9 . _ : @ -', name);
    END IF;

    IF schedule.task_type IS NULL OR NOT kinds ? schedule.task_type THEN
        PERFORM /*schema*/refuse(
            'task_type', 'must be one of http, rabbitmq, kafka, python', schedule.task_type);
    END IF;
    PERFORM /*schema*/check_fields('payload', schedule.payload, kinds -> schedule.task_type);
    FOR item IN SELECT jsonb_array_elements_text(needed -> schedule.task_type) LOOP
        IF NOT schedule.payload ? item THEN
            PERFORM /*schema*/refuse('payload.' || item, 'is required', NULL);
        END IF;
    END LOOP;
    PERFORM /*schema*/check_texts('payload.headers', schedule.payload -> 'headers');
    FOR item IN SELECT jsonb_array_elements(coalesce(schedule.payload -> 'success', '[]'))::text LOOP
        IF item !~ '^[1-5][0-9][0-9]$' THEN
            PERFORM /*schema*/refuse('payload.success', 'must be codes from 100 to 599', item);
        END IF;
    END LOOP;
    IF octet_length(schedule.payload::text) > 65536 THEN
        PERFORM /*schema*/refuse(
            'payload', 'must be at most 65536 bytes', octet_length(schedule.payload::text)::text);
    END IF;

    -- now() is when the transaction began: what was meant by it is not late, however long it took.
    IF starts > '9000-01-01' OR starts < present - interval '10 minutes'
        AND starts <> now()
    THEN
        PERFORM /*schema*/refuse(
            'execute_at', 'must not be more than 10 minutes in the past, nor after the year 9000',
            starts::text);
    END IF;
    IF schedule.max_attempts IS NULL OR schedule.max_attempts NOT BETWEEN 1 AND 1000001 THEN
        PERFORM /*schema*/refuse(
            'max_attempts', 'must be between 1 and 1000001', schedule.max_attempts::text);
    END IF;

    PERFORM /*schema*/check_fields('options', given, '{
        "retry": "object", "timeout": "number|string", "retention": "number|string",
        "deadline": "string", "queue": "string", "priority": "number", "labels": "object"}');
    retry := coalesce(given -> 'retry', '{}');
    PERFORM /*schema*/check_fields('options.retry', retry, '{
        "min_period": "number|string", "max_period": "number|string", "scale": "number",
        "back_off": "number"}');
    IF retry ? 'min_period' THEN
        least_s := /*schema*/seconds_of('options.retry.min_period', retry -> 'min_period', 1, 316224000);
    END IF;
    most_s := least_s;
    IF retry ? 'max_period' THEN
        most_s := /*schema*/seconds_of(
            'options.retry.max_period', retry -> 'max_period', least_s, 316224000);
    END IF;
    FOREACH item IN ARRAY ARRAY['scale', 'back_off'] LOOP
        IF (retry ->> item)::numeric NOT BETWEEN 0 AND 1000000000 THEN
            PERFORM /*schema*/refuse(
                'options.retry.' || item, 'must be between 0 and 1000000000', retry ->> item);
        END IF;
    END LOOP;
    IF given ? 'timeout' THEN
        timeout_s := /*schema*/seconds_of('options.timeout', given -> 'timeout', 0.001, 86400);
    END IF;
    IF given ? 'retention' THEN
        retention_s := /*schema*/seconds_of('options.retention', given -> 'retention', 0, 31622400);
    END IF;
    IF given ? 'deadline' THEN
        BEGIN
            ends := (given ->> 'deadline')::timestamptz;
        EXCEPTION WHEN data_exception THEN
            PERFORM /*schema*/refuse('options.deadline', 'must be a time', given ->> 'deadline');
        END;
        IF ends <= greatest(starts, present) OR ends > '9000-01-01' THEN
            PERFORM /*schema*/refuse(
                'options.deadline', 'must be to come, after execute_at, before the year 9000',
                given ->> 'deadline');
        END IF;
    END IF;
    queue_name := coalesce(given ->> 'queue', 'default');
    IF queue_name !~ '^[A-Za-z0-9._-]{1,64}$' THEN
        PERFORM /*schema*/refuse(
            'options.queue', 'must be 1 to 64 characters out of A-Z a-z 0-9 . _ -', queue_name);
    END IF;
    rank := coalesce((given ->> 'priority')::numeric, 5);
    IF rank NOT IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) THEN
        PERFORM /*schema*/refuse('options.priority', 'must be a whole number from 0 to 9', rank::text);
    END IF;
    PERFORM /*schema*/check_texts('options.labels', given -> 'labels');
    FOR item IN SELECT e.key FROM jsonb_each_text(coalesce(given -> 'labels', '{}')) AS e
        WHERE e.key !~ '^[A-Za-z0-9._-]{1,64}$' OR e.value ~ '[[:cntrl:]]' OR length(e.value) > 256
    LOOP
        PERFORM /*schema*/refuse(
            'options.labels', 'names of 1 to 64 plain characters, printable values up to 256', item);
    END LOOP;
    IF (SELECT count(*) FROM jsonb_object_keys(coalesce(given -> 'labels', '{}'))) > 32 THEN
        PERFORM /*schema*/refuse('options.labels', 'must be at most 32', NULL);
    END IF;

    spec := jsonb_build_object(
        'action', schedule.payload || jsonb_build_object('type', schedule.task_type),
        'start_at', to_char(starts AT TIME ZONE 'UTC', utc),
        'retry', retry || jsonb_build_object(
            'max', schedule.max_attempts - 1,
            'min_period', 'PT' || trim_scale(least_s) || 'S',
            'max_period', 'PT' || trim_scale(most_s) || 'S'),
        'timeout', 'PT' || trim_scale(timeout_s) || 'S',
        'queue', queue_name, 'priority', rank::int,
        'labels', coalesce(given -> 'labels', '{}')
    );
    IF given ? 'retention' THEN
        spec := spec || jsonb_build_object('retention', 'PT' || trim_scale(retention_s) || 'S');
    END IF;
    IF ends IS NOT NULL THEN
        spec := spec || jsonb_build_object('deadline', to_char(ends AT TIME ZONE 'UTC', utc));
    END IF;

    SELECT (/*schema*/crc32(name) % i.shard_count)::int INTO STRICT shard FROM /*schema*/installation AS i;
    INSERT INTO /*schema*/scheduled_action (
        shard_id, id, guid, spec, state, queue, priority, timeout_us, retention_us, keyed,
        created_at, updated_at, scheduled_at, occurrence_no, occurrence_at, expires_at,
        attempts, succeeded, failed, interrupted,
        consecutive_failures, consecutive_interruptions, occurrence_failures, creator
    ) VALUES (
        shard, name, made, spec::text, 'active', queue_name, rank::smallint, timeout_s * 1000000,
        retention_s * 1000000, false, present, present, starts, 1, starts, ends,
        0, 0, 0, 0, 0, 0, 0, NULL
    ) ON CONFLICT (shard_id, id) DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'id: an action with this id exists already (got %)', name
            USING ERRCODE = '23505';
    END IF;
    INSERT INTO /*schema*/incoming_queue (shard_id, created_at, guid, queue, priority, scheduled_at)
    VALUES (shard, present, made, queue_name, rank::smallint, starts);
    INSERT INTO /*schema*/audit (at, guid, shard_id, count, verb, actor, id)
    VALUES (present, made, shard, 1, 'create', 'sql:' || session_user, name);
    RETURN name;
END
$$;

CREATE FUNCTION /*schema*/cancel(id text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    present timestamptz;
    shard int;
    made uuid;
BEGIN
    SELECT (/*schema*/crc32(cancel.id) % i.shard_count)::int INTO STRICT shard
    FROM /*schema*/installation AS i;
    SELECT a.guid INTO made FROM /*schema*/scheduled_action AS a
    WHERE a.shard_id = shard AND a.id = cancel.id
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- After the lock: an attempt that began before it was granted is visible to these.
    present := clock_timestamp();
    INSERT INTO /*schema*/attempt_log (
        shard_id, id, guid, attempt_id, attempt_no, occurrence_no, began_at, outcome, owner
    )
    SELECT a.shard_id, a.id, a.guid, q.attempt_id, q.attempts, a.occurrence_no, q.began_at,
           'superseded', q.owner
    FROM /*schema*/scheduled_action AS a
    JOIN /*schema*/processing_queue AS q ON q.guid = a.guid AND q.shard_id = a.shard_id
    WHERE a.shard_id = shard AND a.id = cancel.id AND q.running
    ON CONFLICT DO NOTHING;
    -- The same as drop_idle in queries/actions.sql.
    DELETE FROM /*schema*/processing_queue AS q
    WHERE q.ctid = ANY (ARRAY(
        SELECT p.ctid FROM /*schema*/processing_queue AS p
        WHERE p.guid = made AND NOT p.running
        FOR UPDATE SKIP LOCKED
    ));
    INSERT INTO /*schema*/finished_action (
        shard_id, id, guid, spec, state, queue, priority, keyed, created_at, updated_at,
        occurrence_no, occurrence_at, attempts, succeeded, failed, interrupted,
        consecutive_failures, consecutive_interruptions, occurrence_failures,
        last_attempt, reason, finished_at, purge_at
    )
    SELECT
        a.shard_id, a.id, a.guid, a.spec, 'cancelled', a.queue, a.priority, a.keyed, a.created_at,
        present, a.occurrence_no, a.occurrence_at, a.attempts, a.succeeded, a.failed,
        a.interrupted, a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures,
        a.last_attempt, 'deleted', present, present + a.retention_us * interval '1 microsecond'
    FROM /*schema*/scheduled_action AS a
    WHERE a.shard_id = shard AND a.id = cancel.id AND a.retention_us > 0;
    DELETE FROM /*schema*/scheduled_action AS a WHERE a.shard_id = shard AND a.id = cancel.id;
    INSERT INTO /*schema*/audit (at, guid, shard_id, count, verb, actor, id)
    VALUES (present, made, shard, 1, 'delete', 'sql:' || session_user, cancel.id);
    RETURN true;
END
$$;

CREATE VIEW /*schema*/tasks AS
SELECT
    a.id, a.occurrence_at AS execute_at, s.spec #>> '{action,type}' AS task_type,
    (s.spec -> 'action') - 'type' AS payload,
    CASE WHEN q.running THEN 'processing' ELSE 'pending' END AS status,
    coalesce(q.attempts, a.attempts) AS attempts,
    coalesce((s.spec #>> '{retry,max}')::int, 0) + 1 AS max_attempts,
    /*schema*/spec_json(a.last_attempt) ->> 'error' AS error_message,
    a.created_at, a.updated_at, NULL::timestamptz AS completed_at
FROM /*schema*/scheduled_action AS a
CROSS JOIN LATERAL (SELECT /*schema*/spec_json(a.spec) AS spec) AS s
LEFT JOIN /*schema*/processing_queue AS q ON q.guid = a.guid AND q.shard_id = a.shard_id
UNION ALL
SELECT
    f.id, f.occurrence_at, s.spec #>> '{action,type}', (s.spec -> 'action') - 'type',
    CASE f.state WHEN 'done' THEN 'completed' WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END,
    f.attempts, coalesce((s.spec #>> '{retry,max}')::int, 0) + 1,
    CASE WHEN f.state <> 'done'
        THEN coalesce(/*schema*/spec_json(f.last_attempt) ->> 'error', f.reason) END,
    f.created_at, f.updated_at, f.finished_at
FROM /*schema*/finished_action AS f
CROSS JOIN LATERAL (SELECT /*schema*/spec_json(f.spec) AS spec) AS s
WHERE f.purge_at > statement_timestamp();

-- Called by the owner: let a role schedule, cancel and look, and nothing else.
CREATE FUNCTION /*schema*/grant_sql(role_name name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    home name := (
        SELECT n.nspname FROM pg_namespace AS n
        JOIN pg_class AS c ON c.relnamespace = n.oid
        WHERE c.oid = '/*schema*/tasks'::regclass
    );
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', home, role_name);
    EXECUTE format('GRANT SELECT ON %I.tasks TO %I', home, role_name);
    EXECUTE format(
        'GRANT EXECUTE ON FUNCTION %1$I.schedule(text, jsonb, timestamptz, text, int, jsonb), '
        '%1$I.cancel(text), %1$I.spec_json(text) TO %2$I', home, role_name);
END
$$;

REVOKE ALL ON FUNCTION
    /*schema*/crc32(text), /*schema*/spec_json(text), /*schema*/refuse(text, text, text),
    /*schema*/check_fields(text, jsonb, jsonb), /*schema*/check_texts(text, jsonb),
    /*schema*/seconds_of(text, jsonb, numeric, numeric),
    /*schema*/schedule(text, jsonb, timestamptz, text, int, jsonb), /*schema*/cancel(text),
    /*schema*/grant_sql(name)
FROM PUBLIC;

-- The last occurrence of an action whose SQL effect is committed, written by the effect's own
-- transaction: whoever attempts the occurrence again sees that it is done.
CREATE TABLE /*schema*/sql_success (
    guid          uuid        NOT NULL,
    at            timestamptz NOT NULL,
    occurrence_no bigint      NOT NULL,
    shard_id      int         NOT NULL,
    CONSTRAINT sql_success_pkey PRIMARY KEY (guid, shard_id)
);

-- Called with the login of a SQL target, which has no right on any table here. The attempt id is a
-- secret of its worker. The row stays locked until the effect is committed: no other attempt can
-- begin before, and none that begins afterwards misses the note.
CREATE FUNCTION /*schema*/finish_ok(p_guid uuid, p_attempt uuid, p_occurrence bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_shard int;
BEGIN
    SELECT q.shard_id INTO v_shard
    FROM /*schema*/processing_queue AS q
    WHERE q.guid = p_guid AND q.attempt_id = p_attempt AND (q.running OR q.swept)
      AND EXISTS (SELECT FROM /*schema*/scheduled_action AS a WHERE a.guid = p_guid)
    FOR UPDATE OF q;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'stale attempt' USING ERRCODE = 'GN001';
    END IF;
    INSERT INTO /*schema*/sql_success AS s (guid, at, occurrence_no, shard_id)
    VALUES (p_guid, statement_timestamp(), p_occurrence, v_shard)
    ON CONFLICT (guid, shard_id) DO UPDATE
    SET at = excluded.at, occurrence_no = excluded.occurrence_no;
END
$$;

CREATE FUNCTION /*schema*/effect_done(p_guid uuid, p_occurrence bigint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM /*schema*/sql_success AS s
        WHERE s.guid = p_guid AND s.occurrence_no = p_occurrence
    )
$$;

REVOKE ALL ON FUNCTION /*schema*/finish_ok(uuid, uuid, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION /*schema*/effect_done(uuid, bigint) FROM PUBLIC;
