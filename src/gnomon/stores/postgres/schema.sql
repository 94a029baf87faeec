-- What all migrations add up to, for readers. Made by `make schema`; do not edit.

CREATE SCHEMA gnomon;
CREATE FUNCTION gnomon.cancel(id text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    present timestamptz;
    shard int;
    made uuid;
BEGIN
    SELECT ("gnomon".crc32(cancel.id) % i.shard_count)::int INTO STRICT shard
    FROM "gnomon".installation AS i;
    SELECT a.guid INTO made FROM "gnomon".scheduled_action AS a
    WHERE a.shard_id = shard AND a.id = cancel.id
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- After the lock: an attempt that began before it was granted is visible to these.
    present := clock_timestamp();
    INSERT INTO "gnomon".attempt_log (
        shard_id, id, guid, attempt_id, attempt_no, occurrence_no, began_at, outcome, owner
    )
    SELECT a.shard_id, a.id, a.guid, q.attempt_id, q.attempts, a.occurrence_no, q.began_at,
           'superseded', q.owner
    FROM "gnomon".scheduled_action AS a
    JOIN "gnomon".processing_queue AS q ON q.guid = a.guid AND q.shard_id = a.shard_id
    WHERE a.shard_id = shard AND a.id = cancel.id AND q.running
    ON CONFLICT DO NOTHING;
    -- The same as drop_idle in queries/actions.sql.
    DELETE FROM "gnomon".processing_queue AS q
    WHERE q.ctid = ANY (ARRAY(
        SELECT p.ctid FROM "gnomon".processing_queue AS p
        WHERE p.guid = made AND NOT p.running
        FOR UPDATE SKIP LOCKED
    ));
    INSERT INTO "gnomon".finished_action (
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
    FROM "gnomon".scheduled_action AS a
    WHERE a.shard_id = shard AND a.id = cancel.id AND a.retention_us > 0;
    DELETE FROM "gnomon".scheduled_action AS a WHERE a.shard_id = shard AND a.id = cancel.id;
    INSERT INTO "gnomon".audit (at, guid, shard_id, count, verb, actor, id)
    VALUES (present, made, shard, 1, 'delete', 'sql:' || session_user, cancel.id);
    RETURN true;
END
$$;
CREATE FUNCTION gnomon.check_fields(field text, given jsonb, kinds jsonb) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    name text;
    kind text;
BEGIN
    IF given IS NULL OR jsonb_typeof(given) <> 'object' THEN
        PERFORM "gnomon".refuse(field, 'must be an object', given::text);
    END IF;
    FOR name, kind IN SELECT e.key, jsonb_typeof(e.value) FROM jsonb_each(given) AS e LOOP
        IF NOT kinds ? name THEN
            PERFORM "gnomon".refuse(field || '.' || name, 'there is no such field here', kind);
        ELSIF kinds ->> name <> 'any' AND NOT kind = ANY (string_to_array(kinds ->> name, '|')) THEN
            PERFORM "gnomon".refuse(field || '.' || name, 'must be: ' || (kinds ->> name), kind);
        END IF;
    END LOOP;
END
$$;
CREATE FUNCTION gnomon.check_texts(field text, given jsonb) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT e.key FROM jsonb_each(coalesce(given, '{}')) AS e
        WHERE jsonb_typeof(e.value) <> 'string'
    LOOP
        PERFORM "gnomon".refuse(field || '.' || name, 'must be a string', given ->> name);
    END LOOP;
END
$$;
CREATE FUNCTION gnomon.crc32(name text) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION gnomon.effect_done(p_guid uuid, p_occurrence bigint) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT EXISTS (
        SELECT FROM "gnomon".sql_success AS s
        WHERE s.guid = p_guid AND s.occurrence_no = p_occurrence
    )
$$;
CREATE FUNCTION gnomon.finish_ok(p_guid uuid, p_attempt uuid, p_occurrence bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    v_shard int;
BEGIN
    SELECT q.shard_id INTO v_shard
    FROM "gnomon".processing_queue AS q
    WHERE q.guid = p_guid AND q.attempt_id = p_attempt AND (q.running OR q.swept)
      AND EXISTS (SELECT FROM "gnomon".scheduled_action AS a WHERE a.guid = p_guid)
    FOR UPDATE OF q;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'stale attempt' USING ERRCODE = 'GN001';
    END IF;
    INSERT INTO "gnomon".sql_success AS s (guid, at, occurrence_no, shard_id)
    VALUES (p_guid, statement_timestamp(), p_occurrence, v_shard)
    ON CONFLICT (guid, shard_id) DO UPDATE
    SET at = excluded.at, occurrence_no = excluded.occurrence_no;
END
$$;
CREATE FUNCTION gnomon.grant_sql(role_name name) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    home name := (
        SELECT n.nspname FROM pg_namespace AS n
        JOIN pg_class AS c ON c.relnamespace = n.oid
        WHERE c.oid = '"gnomon".tasks'::regclass
    );
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', home, role_name);
    EXECUTE format('GRANT SELECT ON %I.tasks TO %I', home, role_name);
    EXECUTE format(
        'GRANT EXECUTE ON FUNCTION %1$I.schedule(text, jsonb, timestamptz, text, int, jsonb), '
        '%1$I.cancel(text), %1$I.spec_json(text) TO %2$I', home, role_name);
END
$_$;
CREATE FUNCTION gnomon.refuse(field text, rule text, value text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RAISE EXCEPTION '%: % (got %)', field, rule, coalesce(left(value, 100), 'NULL')
        USING ERRCODE = '22023';
END
$$;
CREATE FUNCTION gnomon.schedule(task_type text, payload jsonb, execute_at timestamp with time zone DEFAULT NULL::timestamp with time zone, id text DEFAULT NULL::text, max_attempts integer DEFAULT 3, options jsonb DEFAULT '{}'::jsonb) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
        PERFORM "gnomon".refuse(
            'id', 'must be 1 to 200 characters out of A-Z a-z 0-9 . _ : @ -', name);
    END IF;
    IF schedule.task_type IS NULL OR NOT kinds ? schedule.task_type THEN
        PERFORM "gnomon".refuse(
            'task_type', 'must be one of http, rabbitmq, kafka, python', schedule.task_type);
    END IF;
    PERFORM "gnomon".check_fields('payload', schedule.payload, kinds -> schedule.task_type);
    FOR item IN SELECT jsonb_array_elements_text(needed -> schedule.task_type) LOOP
        IF NOT schedule.payload ? item THEN
            PERFORM "gnomon".refuse('payload.' || item, 'is required', NULL);
        END IF;
    END LOOP;
    PERFORM "gnomon".check_texts('payload.headers', schedule.payload -> 'headers');
    FOR item IN SELECT jsonb_array_elements(coalesce(schedule.payload -> 'success', '[]'))::text LOOP
        IF item !~ '^[1-5][0-9][0-9]$' THEN
            PERFORM "gnomon".refuse('payload.success', 'must be codes from 100 to 599', item);
        END IF;
    END LOOP;
    IF octet_length(schedule.payload::text) > 65536 THEN
        PERFORM "gnomon".refuse(
            'payload', 'must be at most 65536 bytes', octet_length(schedule.payload::text)::text);
    END IF;
    -- now() is when the transaction began: what was meant by it is not late, however long it took.
    IF starts > '9000-01-01' OR starts < present - interval '10 minutes'
        AND starts <> now()
    THEN
        PERFORM "gnomon".refuse(
            'execute_at', 'must not be more than 10 minutes in the past, nor after the year 9000',
            starts::text);
    END IF;
    IF schedule.max_attempts IS NULL OR schedule.max_attempts NOT BETWEEN 1 AND 1000001 THEN
        PERFORM "gnomon".refuse(
            'max_attempts', 'must be between 1 and 1000001', schedule.max_attempts::text);
    END IF;
    PERFORM "gnomon".check_fields('options', given, '{
        "retry": "object", "timeout": "number|string", "retention": "number|string",
        "deadline": "string", "queue": "string", "priority": "number", "labels": "object"}');
    retry := coalesce(given -> 'retry', '{}');
    PERFORM "gnomon".check_fields('options.retry', retry, '{
        "min_period": "number|string", "max_period": "number|string", "scale": "number",
        "back_off": "number"}');
    IF retry ? 'min_period' THEN
        least_s := "gnomon".seconds_of('options.retry.min_period', retry -> 'min_period', 1, 316224000);
    END IF;
    most_s := least_s;
    IF retry ? 'max_period' THEN
        most_s := "gnomon".seconds_of(
            'options.retry.max_period', retry -> 'max_period', least_s, 316224000);
    END IF;
    FOREACH item IN ARRAY ARRAY['scale', 'back_off'] LOOP
        IF (retry ->> item)::numeric NOT BETWEEN 0 AND 1000000000 THEN
            PERFORM "gnomon".refuse(
                'options.retry.' || item, 'must be between 0 and 1000000000', retry ->> item);
        END IF;
    END LOOP;
    IF given ? 'timeout' THEN
        timeout_s := "gnomon".seconds_of('options.timeout', given -> 'timeout', 0.001, 86400);
    END IF;
    IF given ? 'retention' THEN
        retention_s := "gnomon".seconds_of('options.retention', given -> 'retention', 0, 31622400);
    END IF;
    IF given ? 'deadline' THEN
        BEGIN
            ends := (given ->> 'deadline')::timestamptz;
        EXCEPTION WHEN data_exception THEN
            PERFORM "gnomon".refuse('options.deadline', 'must be a time', given ->> 'deadline');
        END;
        IF ends <= greatest(starts, present) OR ends > '9000-01-01' THEN
            PERFORM "gnomon".refuse(
                'options.deadline', 'must be to come, after execute_at, before the year 9000',
                given ->> 'deadline');
        END IF;
    END IF;
    queue_name := coalesce(given ->> 'queue', 'default');
    IF queue_name !~ '^[A-Za-z0-9._-]{1,64}$' THEN
        PERFORM "gnomon".refuse(
            'options.queue', 'must be 1 to 64 characters out of A-Z a-z 0-9 . _ -', queue_name);
    END IF;
    rank := coalesce((given ->> 'priority')::numeric, 5);
    IF rank NOT IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) THEN
        PERFORM "gnomon".refuse('options.priority', 'must be a whole number from 0 to 9', rank::text);
    END IF;
    PERFORM "gnomon".check_texts('options.labels', given -> 'labels');
    FOR item IN SELECT e.key FROM jsonb_each_text(coalesce(given -> 'labels', '{}')) AS e
        WHERE e.key !~ '^[A-Za-z0-9._-]{1,64}$' OR e.value ~ '[[:cntrl:]]' OR length(e.value) > 256
    LOOP
        PERFORM "gnomon".refuse(
            'options.labels', 'names of 1 to 64 plain characters, printable values up to 256', item);
    END LOOP;
    IF (SELECT count(*) FROM jsonb_object_keys(coalesce(given -> 'labels', '{}'))) > 32 THEN
        PERFORM "gnomon".refuse('options.labels', 'must be at most 32', NULL);
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
    SELECT ("gnomon".crc32(name) % i.shard_count)::int INTO STRICT shard FROM "gnomon".installation AS i;
    INSERT INTO "gnomon".scheduled_action (
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
    INSERT INTO "gnomon".incoming_queue (shard_id, created_at, guid, queue, priority, scheduled_at)
    VALUES (shard, present, made, queue_name, rank::smallint, starts);
    INSERT INTO "gnomon".audit (at, guid, shard_id, count, verb, actor, id)
    VALUES (present, made, shard, 1, 'create', 'sql:' || session_user, name);
    RETURN name;
END
$_$;
CREATE FUNCTION gnomon.seconds_of(field text, given jsonb, from_s numeric, to_s numeric) RETURNS numeric
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    seconds numeric;
BEGIN
    IF jsonb_typeof(given) = 'number' THEN
        seconds := round((given #>> '{}')::numeric, 6);
    ELSE
        BEGIN
            seconds := extract(epoch FROM (given #>> '{}')::interval);
        EXCEPTION WHEN data_exception THEN
            PERFORM "gnomon".refuse(field, 'must be a duration such as 30 or "5m"', given::text);
        END;
    END IF;
    IF seconds NOT BETWEEN from_s AND to_s THEN
        PERFORM "gnomon".refuse(
            field, format('must be between %s and %s seconds', from_s, to_s), given::text);
    END IF;
    RETURN seconds;
END
$$;
CREATE FUNCTION gnomon.spec_json(spec text) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RETURN spec::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END
$$;
CREATE TABLE gnomon.attempt_log (
    guid uuid NOT NULL,
    attempt_id uuid NOT NULL,
    began_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    occurrence_no bigint NOT NULL,
    shard_id integer NOT NULL,
    attempt_no integer NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    outcome text NOT NULL,
    error text,
    answer text,
    owner text
)
PARTITION BY RANGE (began_at);
CREATE TABLE gnomon.attempt_log_default (
    guid uuid NOT NULL,
    attempt_id uuid NOT NULL,
    began_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    occurrence_no bigint NOT NULL,
    shard_id integer NOT NULL,
    attempt_no integer NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    outcome text NOT NULL,
    error text,
    answer text,
    owner text
);
CREATE TABLE gnomon.audit (
    at timestamp with time zone NOT NULL,
    guid uuid NOT NULL,
    shard_id integer NOT NULL,
    count integer NOT NULL,
    verb text NOT NULL,
    actor text NOT NULL,
    id text NOT NULL
)
PARTITION BY RANGE (at);
CREATE TABLE gnomon.audit_default (
    at timestamp with time zone NOT NULL,
    guid uuid NOT NULL,
    shard_id integer NOT NULL,
    count integer NOT NULL,
    verb text NOT NULL,
    actor text NOT NULL,
    id text NOT NULL
);
CREATE TABLE gnomon.entity (
    changed_at timestamp with time zone NOT NULL,
    epoch bigint NOT NULL,
    version bigint NOT NULL,
    saves bigint NOT NULL,
    shard_id integer NOT NULL,
    keeps_states boolean NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    doc text
)
WITH (fillfactor='80');
CREATE TABLE gnomon.entity_change (
    root uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    epoch bigint NOT NULL,
    version bigint NOT NULL,
    shard_id integer NOT NULL,
    depth integer NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    author text NOT NULL,
    paths text NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
CREATE TABLE gnomon.finished_action (
    guid uuid NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    purge_at timestamp with time zone NOT NULL,
    occurrence_at timestamp with time zone NOT NULL,
    began_at timestamp with time zone,
    attempt_id uuid,
    occurrence_no bigint NOT NULL,
    shard_id integer NOT NULL,
    attempts integer NOT NULL,
    succeeded integer NOT NULL,
    failed integer NOT NULL,
    interrupted integer NOT NULL,
    consecutive_failures integer NOT NULL,
    consecutive_interruptions integer NOT NULL,
    occurrence_failures integer NOT NULL,
    priority smallint NOT NULL,
    keyed boolean NOT NULL,
    state text NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    spec text NOT NULL,
    last_attempt text,
    reason text,
    CONSTRAINT finished_action_state_check CHECK ((state = ANY (ARRAY['done'::text, 'dead'::text, 'cancelled'::text, 'expired'::text])))
)
PARTITION BY RANGE (finished_at);
CREATE TABLE gnomon.finished_action_default (
    guid uuid NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    purge_at timestamp with time zone NOT NULL,
    occurrence_at timestamp with time zone NOT NULL,
    began_at timestamp with time zone,
    attempt_id uuid,
    occurrence_no bigint NOT NULL,
    shard_id integer NOT NULL,
    attempts integer NOT NULL,
    succeeded integer NOT NULL,
    failed integer NOT NULL,
    interrupted integer NOT NULL,
    consecutive_failures integer NOT NULL,
    consecutive_interruptions integer NOT NULL,
    occurrence_failures integer NOT NULL,
    priority smallint NOT NULL,
    keyed boolean NOT NULL,
    state text NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    spec text NOT NULL,
    last_attempt text,
    reason text,
    CONSTRAINT finished_action_state_check CHECK ((state = ANY (ARRAY['done'::text, 'dead'::text, 'cancelled'::text, 'expired'::text])))
);
CREATE TABLE gnomon.incoming_queue (
    created_at timestamp with time zone NOT NULL,
    guid uuid NOT NULL,
    scheduled_at timestamp with time zone NOT NULL,
    shard_id integer NOT NULL,
    priority smallint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
CREATE TABLE gnomon.installation (
    id uuid NOT NULL,
    created_at timestamp with time zone NOT NULL,
    shard_count integer NOT NULL,
    schema_version integer NOT NULL,
    floor integer NOT NULL,
    system_identifier bigint NOT NULL,
    timeline bigint NOT NULL,
    database_oid bigint NOT NULL,
    limits_version bigint DEFAULT 0 NOT NULL
);
CREATE TABLE gnomon.limit_grant (
    worker_id uuid NOT NULL,
    asked_at timestamp with time zone NOT NULL,
    since timestamp with time zone NOT NULL,
    wanted integer NOT NULL,
    counted integer NOT NULL,
    allowed integer NOT NULL,
    is_waiting boolean NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C"
)
WITH (fillfactor='10', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500');
CREATE TABLE gnomon.migration (
    version integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone NOT NULL
);
CREATE TABLE gnomon.processing_queue (
    guid uuid NOT NULL,
    scheduled_at timestamp with time zone NOT NULL,
    attempt_id uuid,
    began_at timestamp with time zone,
    deadline_at timestamp with time zone,
    shard_id integer NOT NULL,
    attempts integer NOT NULL,
    priority smallint NOT NULL,
    running boolean NOT NULL,
    swept boolean NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    owner text
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
CREATE TABLE gnomon.stage_queue (
    ready_at timestamp with time zone,
    timer_at timestamp with time zone,
    first_at timestamp with time zone NOT NULL,
    root uuid NOT NULL,
    seq bigint NOT NULL,
    shard_id integer NOT NULL,
    depth integer NOT NULL,
    attempts integer NOT NULL,
    lane smallint NOT NULL,
    status text NOT NULL COLLATE pg_catalog."C",
    entity_id text NOT NULL COLLATE pg_catalog."C",
    stage text NOT NULL COLLATE pg_catalog."C",
    reasons text[] NOT NULL,
    error text,
    note text,
    CONSTRAINT stage_queue_status_check CHECK ((status = ANY (ARRAY['sleeping'::text, 'ready'::text, 'quarantined'::text, 'looping'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
CREATE VIEW gnomon.queue_inverted AS
 SELECT q.shard_id,
    q.entity_id,
    q.stage,
    q.status,
    q.lane,
    q.ready_at,
    q.timer_at,
    q.seq,
    q.attempts
   FROM gnomon.stage_queue q;
CREATE TABLE gnomon.scheduled_action (
    guid uuid NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    scheduled_at timestamp with time zone,
    occurrence_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    occurrence_no bigint NOT NULL,
    timeout_us bigint NOT NULL,
    retention_us bigint NOT NULL,
    shard_id integer NOT NULL,
    attempts integer NOT NULL,
    succeeded integer NOT NULL,
    failed integer NOT NULL,
    interrupted integer NOT NULL,
    consecutive_failures integer NOT NULL,
    consecutive_interruptions integer NOT NULL,
    occurrence_failures integer NOT NULL,
    priority smallint NOT NULL,
    keyed boolean NOT NULL,
    state text NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    spec text NOT NULL,
    last_attempt text,
    creator text COLLATE pg_catalog."C",
    CONSTRAINT scheduled_action_retention_us_check CHECK (((retention_us >= 0) AND (retention_us <= '31622400000000'::bigint))),
    CONSTRAINT scheduled_action_state_check CHECK ((state = ANY (ARRAY['active'::text, 'paused'::text]))),
    CONSTRAINT scheduled_action_timeout_us_check CHECK (((timeout_us >= 1) AND (timeout_us <= '86400000000'::bigint)))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
CREATE TABLE gnomon.shard_lock (
    beat bigint NOT NULL,
    lease_guid uuid,
    heartbeat_at timestamp with time zone,
    last_processing_start_at timestamp with time zone,
    incoming_mark timestamp with time zone,
    shard_id integer NOT NULL,
    owner text
)
WITH (fillfactor='10', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500');
CREATE TABLE gnomon.sql_success (
    guid uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    occurrence_no bigint NOT NULL,
    shard_id integer NOT NULL
);
CREATE TABLE gnomon.stage (
    first_seen_at timestamp with time zone NOT NULL,
    last_seen_at timestamp with time zone NOT NULL,
    settle interval NOT NULL,
    revision integer NOT NULL,
    own_echo boolean NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE gnomon.stage_feed (
    first_at timestamp with time zone NOT NULL,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    since bigint NOT NULL,
    shard_id integer NOT NULL,
    entity_id text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
CREATE TABLE gnomon.stage_outbox (
    root uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    ready_at timestamp with time zone,
    epoch bigint NOT NULL,
    version bigint NOT NULL,
    n bigint NOT NULL,
    state_version bigint,
    shard_id integer NOT NULL,
    attempts integer NOT NULL,
    state_revision integer,
    sink text NOT NULL COLLATE pg_catalog."C",
    entity_id text NOT NULL COLLATE pg_catalog."C",
    author text NOT NULL,
    paths text NOT NULL,
    key text NOT NULL,
    doc text,
    state_type text,
    state_body bytea,
    error text
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
CREATE TABLE gnomon.stage_state (
    version bigint NOT NULL,
    shard_id integer NOT NULL,
    revision integer NOT NULL,
    entity_id text NOT NULL COLLATE pg_catalog."C",
    stage text NOT NULL COLLATE pg_catalog."C",
    type text,
    body bytea NOT NULL
)
WITH (fillfactor='80');
CREATE TABLE gnomon.stage_sweep (
    started_at timestamp with time zone NOT NULL,
    shard_id integer NOT NULL,
    ended boolean NOT NULL,
    stage text NOT NULL COLLATE pg_catalog."C",
    cursor text COLLATE pg_catalog."C",
    reason text NOT NULL
);
CREATE VIEW gnomon.tasks AS
 SELECT a.id,
    a.occurrence_at AS execute_at,
    (s.spec #>> '{action,type}'::text[]) AS task_type,
    ((s.spec -> 'action'::text) - 'type'::text) AS payload,
        CASE
            WHEN q.running THEN 'processing'::text
            ELSE 'pending'::text
        END AS status,
    COALESCE(q.attempts, a.attempts) AS attempts,
    (COALESCE(((s.spec #>> '{retry,max}'::text[]))::integer, 0) + 1) AS max_attempts,
    (gnomon.spec_json(a.last_attempt) ->> 'error'::text) AS error_message,
    a.created_at,
    a.updated_at,
    NULL::timestamp with time zone AS completed_at
   FROM ((gnomon.scheduled_action a
     CROSS JOIN LATERAL ( SELECT gnomon.spec_json(a.spec) AS spec) s)
     LEFT JOIN gnomon.processing_queue q ON (((q.guid = a.guid) AND (q.shard_id = a.shard_id))))
UNION ALL
 SELECT f.id,
    f.occurrence_at AS execute_at,
    (s.spec #>> '{action,type}'::text[]) AS task_type,
    ((s.spec -> 'action'::text) - 'type'::text) AS payload,
        CASE f.state
            WHEN 'done'::text THEN 'completed'::text
            WHEN 'cancelled'::text THEN 'cancelled'::text
            ELSE 'failed'::text
        END AS status,
    f.attempts,
    (COALESCE(((s.spec #>> '{retry,max}'::text[]))::integer, 0) + 1) AS max_attempts,
        CASE
            WHEN (f.state <> 'done'::text) THEN COALESCE((gnomon.spec_json(f.last_attempt) ->> 'error'::text), f.reason)
            ELSE NULL::text
        END AS error_message,
    f.created_at,
    f.updated_at,
    f.finished_at AS completed_at
   FROM (gnomon.finished_action f
     CROSS JOIN LATERAL ( SELECT gnomon.spec_json(f.spec) AS spec) s)
  WHERE (f.purge_at > statement_timestamp());
CREATE TABLE gnomon.token (
    token_id uuid NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    rate double precision,
    live_max integer,
    digest bytea NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    scopes text[] NOT NULL
);
CREATE TABLE gnomon.work_limit (
    rate double precision,
    parallel integer,
    burst integer,
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT work_limit_kind_check CHECK ((kind = ANY (ARRAY['queue'::text, 'target'::text, 'stage'::text])))
)
WITH (fillfactor='10', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500');
CREATE TABLE gnomon.worker (
    worker_id uuid NOT NULL,
    started_at timestamp with time zone NOT NULL,
    heartbeat_at timestamp with time zone NOT NULL,
    shards integer NOT NULL,
    owner text NOT NULL
)
WITH (fillfactor='10');
ALTER TABLE ONLY gnomon.attempt_log ATTACH PARTITION gnomon.attempt_log_default DEFAULT;
ALTER TABLE ONLY gnomon.audit ATTACH PARTITION gnomon.audit_default DEFAULT;
ALTER TABLE ONLY gnomon.finished_action ATTACH PARTITION gnomon.finished_action_default DEFAULT;
ALTER TABLE ONLY gnomon.attempt_log
    ADD CONSTRAINT attempt_log_pkey PRIMARY KEY (attempt_id, shard_id, began_at);
ALTER TABLE ONLY gnomon.attempt_log_default
    ADD CONSTRAINT attempt_log_default_pkey PRIMARY KEY (attempt_id, shard_id, began_at);
ALTER TABLE ONLY gnomon.entity_change
    ADD CONSTRAINT entity_change_pkey PRIMARY KEY (shard_id, id, epoch, version);
ALTER TABLE ONLY gnomon.entity
    ADD CONSTRAINT entity_pkey PRIMARY KEY (shard_id, id);
ALTER TABLE ONLY gnomon.finished_action
    ADD CONSTRAINT finished_action_pkey PRIMARY KEY (shard_id, id, guid, finished_at);
ALTER TABLE ONLY gnomon.finished_action_default
    ADD CONSTRAINT finished_action_default_pkey PRIMARY KEY (shard_id, id, guid, finished_at);
ALTER TABLE ONLY gnomon.incoming_queue
    ADD CONSTRAINT incoming_queue_pkey PRIMARY KEY (shard_id, created_at, guid);
ALTER TABLE ONLY gnomon.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (id);
ALTER TABLE ONLY gnomon.limit_grant
    ADD CONSTRAINT limit_grant_pkey PRIMARY KEY (kind, name, worker_id);
ALTER TABLE ONLY gnomon.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (version);
ALTER TABLE ONLY gnomon.processing_queue
    ADD CONSTRAINT processing_queue_pkey PRIMARY KEY (guid, shard_id);
ALTER TABLE ONLY gnomon.scheduled_action
    ADD CONSTRAINT scheduled_action_pkey PRIMARY KEY (shard_id, id);
ALTER TABLE ONLY gnomon.shard_lock
    ADD CONSTRAINT shard_lock_pkey PRIMARY KEY (shard_id);
ALTER TABLE ONLY gnomon.sql_success
    ADD CONSTRAINT sql_success_pkey PRIMARY KEY (guid, shard_id);
ALTER TABLE ONLY gnomon.stage_feed
    ADD CONSTRAINT stage_feed_pkey PRIMARY KEY (shard_id, entity_id);
ALTER TABLE ONLY gnomon.stage_outbox
    ADD CONSTRAINT stage_outbox_pkey PRIMARY KEY (shard_id, entity_id, sink, n);
ALTER TABLE ONLY gnomon.stage
    ADD CONSTRAINT stage_pkey PRIMARY KEY (name);
ALTER TABLE ONLY gnomon.stage_queue
    ADD CONSTRAINT stage_queue_pkey PRIMARY KEY (shard_id, entity_id, stage);
ALTER TABLE ONLY gnomon.stage_state
    ADD CONSTRAINT stage_state_pkey PRIMARY KEY (shard_id, entity_id, stage);
ALTER TABLE ONLY gnomon.stage_sweep
    ADD CONSTRAINT stage_sweep_pkey PRIMARY KEY (shard_id, stage);
ALTER TABLE ONLY gnomon.token
    ADD CONSTRAINT token_digest_key UNIQUE (digest);
ALTER TABLE ONLY gnomon.token
    ADD CONSTRAINT token_pkey PRIMARY KEY (token_id);
ALTER TABLE ONLY gnomon.work_limit
    ADD CONSTRAINT work_limit_pkey PRIMARY KEY (kind, name);
ALTER TABLE ONLY gnomon.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (worker_id);
CREATE INDEX attempt_log_id_idx ON ONLY gnomon.attempt_log USING btree (shard_id, id, began_at);
CREATE INDEX attempt_log_default_shard_id_id_began_at_idx ON gnomon.attempt_log_default USING btree (shard_id, id, began_at);
CREATE INDEX audit_at_idx ON ONLY gnomon.audit USING btree (at);
CREATE INDEX audit_default_at_idx ON gnomon.audit_default USING btree (at);
CREATE INDEX entity_change_at_idx ON gnomon.entity_change USING brin (at);
CREATE INDEX entity_kept_idx ON gnomon.entity USING btree (shard_id, id) WHERE keeps_states;
CREATE INDEX finished_action_guid_idx ON ONLY gnomon.finished_action USING btree (guid);
CREATE INDEX finished_action_default_guid_idx ON gnomon.finished_action_default USING btree (guid);
CREATE INDEX finished_action_purge_idx ON ONLY gnomon.finished_action USING brin (purge_at);
CREATE INDEX finished_action_default_purge_at_idx ON gnomon.finished_action_default USING brin (purge_at);
CREATE INDEX finished_action_trouble_idx ON ONLY gnomon.finished_action USING btree (shard_id, id) WHERE (state <> 'done'::text);
CREATE INDEX finished_action_default_shard_id_id_idx ON gnomon.finished_action_default USING btree (shard_id, id) WHERE (state <> 'done'::text);
CREATE INDEX processing_queue_lane_idx ON gnomon.processing_queue USING btree (shard_id, queue, priority, scheduled_at);
CREATE INDEX processing_queue_running_idx ON gnomon.processing_queue USING btree (shard_id, scheduled_at) WHERE running;
CREATE INDEX scheduled_action_creator_idx ON gnomon.scheduled_action USING btree (creator) WHERE (creator IS NOT NULL);
CREATE INDEX scheduled_action_expiry_idx ON gnomon.scheduled_action USING btree (shard_id, expires_at) WHERE (expires_at IS NOT NULL);
CREATE INDEX scheduled_action_guid_idx ON gnomon.scheduled_action USING btree (guid);
CREATE INDEX stage_feed_first_idx ON gnomon.stage_feed USING btree (shard_id, first_at);
CREATE INDEX stage_outbox_late_idx ON gnomon.stage_outbox USING btree (shard_id, sink, at) WHERE (ready_at > at);
CREATE INDEX stage_outbox_parked_idx ON gnomon.stage_outbox USING btree (entity_id, sink, n) WHERE (ready_at IS NULL);
CREATE INDEX stage_outbox_ready_idx ON gnomon.stage_outbox USING btree (shard_id, sink, ready_at, n) WHERE (ready_at IS NOT NULL);
CREATE INDEX stage_queue_parked_idx ON gnomon.stage_queue USING btree (entity_id, stage) WHERE (status = ANY (ARRAY['quarantined'::text, 'looping'::text]));
CREATE INDEX stage_queue_ready_idx ON gnomon.stage_queue USING btree (shard_id, stage, lane, ready_at) WHERE (status = 'ready'::text);
CREATE INDEX stage_queue_timer_idx ON gnomon.stage_queue USING btree (shard_id, timer_at) WHERE ((timer_at IS NOT NULL) AND (status = ANY (ARRAY['sleeping'::text, 'ready'::text])));
CREATE INDEX token_name_idx ON gnomon.token USING btree (name, created_at);
ALTER INDEX gnomon.attempt_log_pkey ATTACH PARTITION gnomon.attempt_log_default_pkey;
ALTER INDEX gnomon.attempt_log_id_idx ATTACH PARTITION gnomon.attempt_log_default_shard_id_id_began_at_idx;
ALTER INDEX gnomon.audit_at_idx ATTACH PARTITION gnomon.audit_default_at_idx;
ALTER INDEX gnomon.finished_action_guid_idx ATTACH PARTITION gnomon.finished_action_default_guid_idx;
ALTER INDEX gnomon.finished_action_pkey ATTACH PARTITION gnomon.finished_action_default_pkey;
ALTER INDEX gnomon.finished_action_purge_idx ATTACH PARTITION gnomon.finished_action_default_purge_at_idx;
ALTER INDEX gnomon.finished_action_trouble_idx ATTACH PARTITION gnomon.finished_action_default_shard_id_id_idx;
