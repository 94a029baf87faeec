-- What all migrations add up to, for readers. Made by `make schema`; do not edit.

CREATE SCHEMA gnomon;
CREATE DOMAIN gnomon.live_state AS text
	CONSTRAINT live_state_check CHECK ((VALUE = ANY (ARRAY['active'::text, 'paused'::text])));
CREATE DOMAIN gnomon.moment AS timestamp with time zone
	CONSTRAINT moment_check CHECK (((VALUE >= '0001-01-01 00:00:00+00'::timestamp with time zone) AND (VALUE < '10000-01-01 00:00:00+00'::timestamp with time zone)));
CREATE DOMAIN gnomon.retention_us AS bigint
	CONSTRAINT retention_us_check CHECK (((VALUE >= 0) AND (VALUE <= '31622400000000'::bigint)));
CREATE DOMAIN gnomon.timeout_us AS bigint
	CONSTRAINT timeout_us_check CHECK (((VALUE >= 1) AND (VALUE <= '86400000000'::bigint)));
CREATE FUNCTION gnomon.cancel(id text, running boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    present timestamptz;
    shard int := ("gnomon".shard_hash(cancel.id) % "gnomon".shard_count())::int;
    made uuid;
    since timestamptz;
    flight int;
BEGIN
    SELECT a.guid, a.updated_at INTO made, since FROM "gnomon".scheduled_action AS a
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
           CASE WHEN cancel.running THEN 'cancelling' ELSE 'superseded' END, q.owner
    FROM "gnomon".scheduled_action AS a
    CROSS JOIN (
        SELECT p.attempt_id, p.attempts, p.began_at, p.owner
        FROM "gnomon".processing_queue AS p
        WHERE p.guid = made AND p.shard_id = shard AND p.running
        UNION ALL
        SELECT i.attempt_id, 1, i.began_at, i.owner
        FROM "gnomon".incoming_queue AS i
        WHERE i.shard_id = shard AND i.created_at = since AND i.guid = made
          AND i.attempt_id IS NOT NULL
    ) AS q
    WHERE a.shard_id = shard AND a.id = cancel.id
    ON CONFLICT DO NOTHING
    RETURNING 1 INTO flight;
    flight := coalesce(flight, 0);
    PERFORM "gnomon".check_snapshot(shard, made);
    -- The same as change_drop_row in queries/actions.sql.
    DELETE FROM "gnomon".processing_queue AS q
    WHERE q.shard_id = shard AND q.ctid = ANY (ARRAY(
        SELECT p.ctid FROM "gnomon".processing_queue AS p
        WHERE p.guid = made AND p.shard_id = shard AND NOT p.running
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
        present, a.occurrence_no, a.occurrence_at, a.attempts + flight, a.succeeded, a.failed,
        a.interrupted + flight, a.consecutive_failures, a.consecutive_interruptions,
        a.occurrence_failures, a.last_attempt, 'deleted', present,
        present + a.retention_us * interval '1 microsecond'
    FROM "gnomon".scheduled_action AS a
    WHERE a.shard_id = shard AND a.id = cancel.id AND a.retention_us > 0;
    DELETE FROM "gnomon".scheduled_action AS a WHERE a.shard_id = shard AND a.id = cancel.id;
    INSERT INTO "gnomon".audit (at, guid, shard_id, count, verb, actor, id, face)
    VALUES (present, made, shard, 1, 'delete', 'sql:' || session_user, cancel.id, 'sql');
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
CREATE FUNCTION gnomon.check_payload(place text, kind text, payload jsonb) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    field text := place || 'payload';
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
    item text;
BEGIN
    IF kind IS NULL OR NOT kinds ? kind THEN
        PERFORM "gnomon".refuse(
            place || 'task_type', 'must be one of http, rabbitmq, kafka, python', kind);
    END IF;
    PERFORM "gnomon".check_fields(field, payload, kinds -> kind);
    FOR item IN SELECT jsonb_array_elements_text(needed -> kind) LOOP
        IF NOT payload ? item THEN
            PERFORM "gnomon".refuse(field || '.' || item, 'is required', NULL);
        END IF;
    END LOOP;
    IF octet_length(payload::text) > 65536 THEN
        PERFORM "gnomon".refuse(
            field, 'must be at most 65536 bytes', octet_length(payload::text)::text);
    END IF;
    IF "gnomon".payload_fits(kind, payload, payload::text) THEN
        RETURN;
    END IF;
    PERFORM "gnomon".check_texts(field || '.headers', payload -> 'headers');
    -- No value is shown: a URL, a header or a body may hold a secret.
    IF payload ? 'headers' AND NOT "gnomon".headers_fit(kind, payload -> 'headers') THEN
        PERFORM "gnomon".refuse(
            field || '.headers', 'at most 32 tokens that are the caller''s to say, with visible ASCII',
            (SELECT string_agg(k, ', ') FROM jsonb_object_keys(payload -> 'headers') AS k));
    ELSIF payload ? 'success' AND NOT "gnomon".codes_fit(payload -> 'success') THEN
        PERFORM "gnomon".refuse(
            field || '.success', 'must be codes from 100 to 599, at most 32', payload ->> 'success');
    ELSIF payload ->> 'json' IS NOT NULL
        AND coalesce(payload ->> 'body', payload ->> 'value') IS NOT NULL
    THEN
        PERFORM "gnomon".refuse(field || '.json', 'must not be given together with a text', 'both');
    ELSIF kind = 'http'
        AND payload ->> 'method' NOT IN ('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE')
    THEN
        PERFORM "gnomon".refuse(
            field || '.method', 'must be GET, HEAD, POST, PUT, PATCH or DELETE', payload ->> 'method');
    ELSIF kind = 'http' AND payload ->> 'method' IN ('GET', 'HEAD')
        AND coalesce(payload ->> 'body', payload ->> 'json') IS NOT NULL
    THEN
        PERFORM "gnomon".refuse(
            field || '.body', 'must not be sent with ' || (payload ->> 'method'), 'one');
    ELSIF NOT "gnomon".payload_fits(
        kind, payload - '{json,args,kwargs,body}'::text[],
        (payload - '{json,args,kwargs,body}'::text[])::text
    ) THEN
        PERFORM "gnomon".refuse(
            field || '.' || (needed -> kind ->> -1),
            'or another field is not what the reference says of ' || kind || ' actions', 'hidden');
    END IF;
    PERFORM "gnomon".refuse(
        field, 'must be nested at most 32 levels deep, with numbers of at most 18 digits', 'more');
END
$$;
CREATE FUNCTION gnomon.check_snapshot(p_shard integer, p_guid uuid) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN
        RETURN;
    END IF;
    BEGIN
        PERFORM 1 FROM "gnomon".incoming_queue AS i
        JOIN "gnomon".scheduled_action AS a ON a.shard_id = i.shard_id AND a.guid = i.guid
        WHERE i.shard_id = p_shard AND i.guid = p_guid AND i.created_at = a.updated_at
        FOR UPDATE OF i SKIP LOCKED;
        RAISE EXCEPTION 'undo' USING ERRCODE = 'GN002';
    EXCEPTION WHEN SQLSTATE 'GN002' THEN
        RETURN;
    END;
END
$$;
CREATE FUNCTION gnomon.check_task(place text, task jsonb) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    present timestamptz := clock_timestamp();
    name text := task ->> 'id';
    starts timestamptz;
    ends timestamptz;
BEGIN
    PERFORM "gnomon".check_fields(rtrim(place, '.'), task, '{
        "task_type": "string|null", "payload": "any", "execute_at": "string|null",
        "id": "string|null", "max_attempts": "number|null", "options": "object|null"}');
    IF name !~ '^[A-Za-z0-9._:@-]{1,200}$' OR name IN ('.', '..') THEN
        PERFORM "gnomon".refuse(
            place || 'id', 'must be 1 to 200 characters out of A-Z a-z 0-9 . _ : @ -', name);
    END IF;
    PERFORM "gnomon".check_payload(place, task ->> 'task_type', task -> 'payload');
    BEGIN
        starts := coalesce((task ->> 'execute_at')::timestamptz, present);
    EXCEPTION WHEN data_exception THEN
        PERFORM "gnomon".refuse(place || 'execute_at', 'must be a time', task ->> 'execute_at');
    END;
    IF starts >= '9000-01-01Z' OR starts < present - interval '10 minutes' AND starts <> now() THEN
        PERFORM "gnomon".refuse(
            place || 'execute_at',
            'must not be more than 10 minutes in the past, nor after the year 9000', starts::text);
    END IF;
    IF coalesce((task ->> 'max_attempts')::numeric, 3) NOT BETWEEN 1 AND 1000001
        OR (task ->> 'max_attempts')::numeric % 1 <> 0
    THEN
        PERFORM "gnomon".refuse(
            place || 'max_attempts', 'must be a whole number between 1 and 1000001',
            task ->> 'max_attempts');
    END IF;
    SELECT o.ends INTO ends
    FROM "gnomon".options_of(place, coalesce(nullif(task -> 'options', 'null'), '{}')) AS o;
    IF ends <= greatest(starts, present) THEN
        PERFORM "gnomon".refuse(
            place || 'options.deadline', 'must be to come, and after execute_at',
            task #>> '{options,deadline}');
    END IF;
END
$_$;
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
CREATE FUNCTION gnomon.codes_fit(codes jsonb) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
BEGIN
    RETURN jsonb_typeof(codes) = 'array' AND jsonb_array_length(codes) <= 32
        AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(codes) AS c WHERE c::text !~ '^[1-5][0-9][0-9]$');
END
$_$;
CREATE FUNCTION gnomon.effect_done(p_id text, p_guid uuid, p_occurrence bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    v_shard int := ("gnomon".shard_hash(p_id) % "gnomon".shard_count())::int;
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM "gnomon".scheduled_action AS a
        JOIN "gnomon".sql_success AS s
            ON s.shard_id = a.shard_id AND s.guid = coalesce(a.series, a.guid)
        WHERE a.shard_id = v_shard AND a.guid = p_guid AND s.occurrence_no = p_occurrence
    );
END
$$;
CREATE FUNCTION gnomon.effect_names(spec text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    effect jsonb;
BEGIN
    effect := spec::jsonb -> 'action';
    RETURN jsonb_build_array(
        left(effect ->> 'type', 200), left(effect ->> 'function', 200), left(effect ->> 'target', 200)
    )::text;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END
$$;
CREATE FUNCTION gnomon.finish_ok(p_id text, p_guid uuid, p_attempt uuid, p_occurrence bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    v_shard int := ("gnomon".shard_hash(p_id) % "gnomon".shard_count())::int;
    v_series uuid;
    v_spec jsonb;
BEGIN
    SELECT "gnomon".spec_json(a.spec) INTO v_spec
    FROM "gnomon".scheduled_action AS a
    WHERE a.shard_id = v_shard AND a.guid = p_guid AND a.occurrence_no = p_occurrence;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'stale attempt' USING ERRCODE = 'GN001';
    END IF;
    IF v_spec #>> '{action,type}' IS DISTINCT FROM 'sql' OR NOT EXISTS (
        SELECT 1 FROM "gnomon".target_login AS t
        WHERE t.target = v_spec #>> '{action,target}' AND t.role = session_user
    ) THEN
        RAISE EXCEPTION 'this login is not that of the action''s target: gnomon target setup'
            USING ERRCODE = '42501';
    END IF;
    -- First where it may have been begun: from there it may be moved on, never back.
    SELECT coalesce(a.series, a.guid) INTO v_series
    FROM "gnomon".scheduled_action AS a
    JOIN "gnomon".incoming_queue AS i
        ON i.shard_id = a.shard_id AND i.created_at = a.updated_at AND i.guid = a.guid
    WHERE a.shard_id = v_shard AND a.guid = p_guid AND i.attempt_id = p_attempt
    FOR UPDATE OF i;
    IF NOT FOUND THEN
        SELECT coalesce(a.series, a.guid) INTO v_series
        FROM "gnomon".processing_queue AS q
        JOIN "gnomon".scheduled_action AS a ON a.shard_id = q.shard_id AND a.guid = q.guid
        WHERE q.shard_id = v_shard AND q.guid = p_guid AND q.attempt_id = p_attempt
          AND (q.running OR q.swept)
        FOR UPDATE OF q;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'stale attempt' USING ERRCODE = 'GN001';
    END IF;
    -- Not VALUES: on Citus that row would be committed on its node before the effect is on this one,
    -- and a crash in between, or a commit that fails, would leave the note without the effect. Rows
    -- that are selected from a function are sent from here, and prepared there before either commit.
    INSERT INTO "gnomon".sql_success AS s (guid, at, occurrence_no, shard_id)
    SELECT v_series, statement_timestamp(), p_occurrence, v_shard FROM generate_series(1, 1)
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
        '%1$I.schedule_many(text, jsonb[], timestamptz[], text[], int, jsonb), '
        '%1$I.cancel(text, boolean), %1$I.spec_json(text) TO %2$I', home, role_name);
END
$_$;
CREATE FUNCTION gnomon.guid_head(time_ms bigint) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT lpad(to_hex(time_ms >> 16), 8, '0') || '-' || lpad(to_hex(time_ms & 65535), 4, '0') || '-7'
$$;
CREATE FUNCTION gnomon.headers_fit(kind text, headers jsonb) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    name text;
    value text;
    count int := 0;
    names text[] := '{}';
BEGIN
    IF jsonb_typeof(headers) <> 'object' THEN
        RETURN false;
    END IF;
    FOR name, value IN
        SELECT lower(e.key), CASE jsonb_typeof(e.value) WHEN 'string' THEN e.value #>> '{}' END
        FROM jsonb_each(headers) AS e
    LOOP
        count := count + 1;
        IF value IS NULL OR count > 32 OR name = ANY (names)
            OR length(name) > (CASE kind WHEN 'rabbitmq' THEN 128 ELSE 1024 END)
            OR name !~ '^[!#$%&''*+.^_`|~0-9a-z-]+$' OR length(value) > 1024 OR value !~ '^[ -~]*$'
            OR name LIKE 'gnomon-%'
            OR kind = 'http' AND (
                name ~ '^(proxy|webhook)-' OR name IN (
                    'host', 'content-length', 'transfer-encoding', 'expect', 'cookie',
                    'traceparent', 'connection', 'keep-alive', 'te', 'trailer', 'upgrade')
                OR value LIKE 'secret://%' AND value !~ '^secret://[A-Za-z0-9._-]{1,64}$')
            OR kind = 'rabbitmq' AND (
                name ~ '^x-(first|last)-death-'
                OR name IN ('cc', 'bcc', 'x-death', 'x-received-from'))
        THEN
            RETURN false;
        END IF;
        names := names || name;
    END LOOP;
    RETURN true;
END
$_$;
CREATE FUNCTION gnomon.host_fits(url text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    place text := substring(url FROM '^[^/]*//([^/?]*)');
    host text := regexp_replace(place, ':[0-9]*$', '');
BEGIN
    IF substring(place FROM ':([0-9]*)$')::numeric > 65535 AND place !~ '\]$' THEN
        RETURN false;
    END IF;
    IF host LIKE '[%' THEN
        RETURN family(btrim(host, '[]')::inet) = 6;
    END IF;
    RETURN length(host) <= 253 AND host ~ '^[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?$';
EXCEPTION WHEN data_exception THEN
    RETURN false;
END
$_$;
CREATE FUNCTION gnomon.is_printable(given text, bytes_max integer) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $_$
    SELECT octet_length(given) <= bytes_max AND (given ~ '^[ -~]*$' OR given !~
        '[\u0001-\u001f\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ue000-\uf8ff\ufeff\ufff0-\uffff]')
$_$;
CREATE FUNCTION gnomon.options_of(place text, given jsonb, OUT timeout_us bigint, OUT retention_us bigint, OUT queue text, OUT priority smallint, OUT ends timestamp with time zone, OUT retry_tail text, OUT tail text) RETURNS record
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    field text := place || 'options';
    utc text := 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"';
    retry jsonb;
    labels jsonb;
    seconds numeric;
    least_s numeric := 1;
    most_s numeric := 1;
    item text;
    most numeric;
    rank numeric;
BEGIN
    timeout_us := 15000000;
    retention_us := 604800000000;
    queue := 'default';
    priority := 5;
    retry_tail := '';
    tail := '';
    IF given = '{}' THEN
        RETURN;
    END IF;
    PERFORM "gnomon".check_fields(field, given, '{
        "retry": "object", "timeout": "number|string", "retention": "number|string",
        "deadline": "string", "queue": "string", "priority": "number", "labels": "object"}');
    retry := coalesce(given -> 'retry', '{}');
    labels := coalesce(given -> 'labels', '{}');
    PERFORM "gnomon".check_fields(field || '.retry', retry, '{
        "min_period": "number|string", "max_period": "number|string", "scale": "number",
        "back_off": "number", "jitter": "number"}');
    IF retry ? 'min_period' THEN
        least_s := "gnomon".seconds_of(
            field || '.retry.min_period', retry -> 'min_period', 1, 316224000);
    END IF;
    most_s := least_s;
    IF retry ? 'max_period' THEN
        most_s := "gnomon".seconds_of(
            field || '.retry.max_period', retry -> 'max_period', least_s, 316224000);
    END IF;
    IF retry <> '{}' THEN
        retry_tail := ',"min_period":"PT' || trim_scale(least_s) || 'S","max_period":"PT'
            || trim_scale(most_s) || 'S"';
    END IF;
    FOREACH item IN ARRAY ARRAY['scale', 'back_off', 'jitter'] LOOP
        most := CASE WHEN item = 'jitter' THEN 1 ELSE 1000000000 END;
        IF (retry ->> item)::numeric NOT BETWEEN 0 AND most THEN
            PERFORM "gnomon".refuse(
                field || '.retry.' || item, 'must be between 0 and ' || most, retry ->> item);
        ELSIF retry ? item THEN
            retry_tail := retry_tail || format(',"%s":%s', item, retry -> item);
        END IF;
    END LOOP;
    IF given ? 'timeout' THEN
        seconds := "gnomon".seconds_of(field || '.timeout', given -> 'timeout', 0.001, 86400);
        timeout_us := seconds * 1000000;
        tail := tail || ',"timeout":"PT' || trim_scale(seconds) || 'S"';
    END IF;
    IF given ? 'retention' THEN
        seconds := "gnomon".seconds_of(field || '.retention', given -> 'retention', 0, 31622400);
        retention_us := seconds * 1000000;
        tail := tail || ',"retention":"PT' || trim_scale(seconds) || 'S"';
    END IF;
    IF given ? 'deadline' THEN
        BEGIN
            ends := (given ->> 'deadline')::timestamptz;
        EXCEPTION WHEN data_exception THEN
            NULL;
        END;
        IF (ends > '1970-01-01Z' AND ends < '9000-01-01Z') IS NOT TRUE THEN
            PERFORM "gnomon".refuse(
                field || '.deadline', 'must be a time before the year 9000', given ->> 'deadline');
        END IF;
        tail := tail || ',"deadline":"' || to_char(ends AT TIME ZONE 'UTC', utc) || '"';
    END IF;
    queue := coalesce(given ->> 'queue', queue);
    IF queue !~ '^[A-Za-z0-9._-]{1,64}$' THEN
        PERFORM "gnomon".refuse(
            field || '.queue', 'must be 1 to 64 characters out of A-Z a-z 0-9 . _ -', queue);
    END IF;
    rank := coalesce((given ->> 'priority')::numeric, 5);
    IF rank NOT IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) THEN
        PERFORM "gnomon".refuse(
            field || '.priority', 'must be a whole number from 0 to 9', rank::text);
    END IF;
    priority := rank;
    tail := tail || ',"queue":"' || queue || '","priority":' || priority;
    PERFORM "gnomon".check_texts(field || '.labels', labels);
    FOR item IN SELECT e.key FROM jsonb_each_text(labels) AS e
        WHERE e.key !~ '^[A-Za-z0-9._-]{1,64}$' OR length(e.value) > 256
           OR NOT "gnomon".is_printable(e.value, 1024)
    LOOP
        PERFORM "gnomon".refuse(
            field || '.labels', 'names of 1 to 64 plain characters, printable values up to 256', item);
    END LOOP;
    IF (SELECT count(*) FROM jsonb_object_keys(labels)) > 32 THEN
        PERFORM "gnomon".refuse(field || '.labels', 'must be at most 32', NULL);
    END IF;
    tail := tail || ',"labels":' || labels;
END
$_$;
CREATE FUNCTION gnomon.payload_fits(kind text, payload jsonb, payload_text text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $_$
    SELECT octet_length(payload_text) <= 65536
    AND (octet_length(payload_text) < 64 OR NOT payload
        @? 'strict $.**{33 to last} ? (@.type() == "object" || @.type() == "array")')
    AND NOT payload @? 'strict $.** ? (@ >= 1000000000000000000 || @ <= -1000000000000000000)'
    AND CASE kind
        WHEN 'http' THEN
            payload - '{method,url,headers,body,json,success}'::text[] = '{}'
            AND payload ->> 'method' IN ('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE')
            AND jsonb_typeof(payload -> 'url') = 'string' AND length(payload ->> 'url') <= 2048
            AND payload ->> 'url' ~ '^[hH][tT][tT][pP][sS]?://([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:0*[1-9][0-9]{0,4})?([/?][!"$-\[\]-~]*)?$'
            AND (
                length(split_part(payload ->> 'url', '/', 3)) < 64
                AND split_part(payload ->> 'url', '/', 3) NOT LIKE ALL ('{.%,%..%,[%,%:_____%}')
                OR "gnomon".host_fits(payload ->> 'url'))
            AND coalesce(jsonb_typeof(payload -> 'body'), 'null') IN ('string', 'null')
            AND (payload ->> 'body' IS NULL OR payload ->> 'json' IS NULL)
            AND (payload ->> 'method' NOT IN ('GET', 'HEAD')
                OR payload ->> 'body' IS NULL AND payload ->> 'json' IS NULL)
            AND (NOT payload ? 'headers' OR "gnomon".headers_fit(kind, payload -> 'headers'))
            AND (NOT payload ? 'success' OR "gnomon".codes_fit(payload -> 'success'))
        WHEN 'rabbitmq' THEN
            payload - '{target,routing_key,exchange,body,json,headers,content_type}'::text[] = '{}'
            AND jsonb_typeof(payload -> 'target') = 'string'
            AND payload ->> 'target' ~ '^[A-Za-z0-9._-]{1,64}$'
            AND jsonb_typeof(payload -> 'routing_key') = 'string'
            AND coalesce(jsonb_typeof(payload -> 'exchange'), 'string') = 'string'
            AND coalesce(payload ->> 'exchange', '') || (payload ->> 'routing_key') <> ''
            AND "gnomon".is_printable(coalesce(payload ->> 'exchange', ''), 255)
            AND "gnomon".is_printable(payload ->> 'routing_key', 255)
            AND coalesce(jsonb_typeof(payload -> 'body'), 'null') IN ('string', 'null')
            AND (payload ->> 'body' IS NULL OR payload ->> 'json' IS NULL)
            AND coalesce(jsonb_typeof(payload -> 'content_type'), 'null') IN ('string', 'null')
            AND coalesce(payload ->> 'content_type', 'a') ~ '^[ -~]{1,255}$'
            AND (NOT payload ? 'headers' OR "gnomon".headers_fit(kind, payload -> 'headers'))
        WHEN 'kafka' THEN
            payload - '{target,topic,key,value,json,headers}'::text[] = '{}'
            AND jsonb_typeof(payload -> 'target') = 'string'
            AND payload ->> 'target' ~ '^[A-Za-z0-9._-]{1,64}$'
            AND jsonb_typeof(payload -> 'topic') = 'string'
            AND payload ->> 'topic' ~ '^[A-Za-z0-9._-]{1,249}$'
            AND payload ->> 'topic' !~ '^(__|\.{1,2}$)'
            AND coalesce(jsonb_typeof(payload -> 'key'), 'null') IN ('string', 'null')
            AND octet_length(coalesce(payload ->> 'key', '')) <= 1024
            AND coalesce(jsonb_typeof(payload -> 'value'), 'null') IN ('string', 'null')
            AND (payload ->> 'value' IS NULL OR payload ->> 'json' IS NULL)
            AND coalesce(payload ->> 'key', payload ->> 'value', payload ->> 'json') IS NOT NULL
            AND (NOT payload ? 'headers' OR "gnomon".headers_fit(kind, payload -> 'headers'))
        WHEN 'python' THEN
            payload - '{function,args,kwargs}'::text[] = '{}'
            AND jsonb_typeof(payload -> 'function') = 'string'
            AND payload ->> 'function' ~ '^[A-Za-z0-9._-]{1,64}$'
            AND coalesce(jsonb_typeof(payload -> 'args'), 'array') = 'array'
            AND coalesce(jsonb_typeof(payload -> 'kwargs'), 'object') = 'object'
        ELSE false
    END
$_$;
CREATE FUNCTION gnomon.refuse(field text, rule text, value text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RAISE EXCEPTION '%: % (got %)', left(field, 300), rule, coalesce(left(value, 100), 'NULL')
        USING ERRCODE = '22023';
END
$$;
CREATE FUNCTION gnomon.refuse_tasks(tasks jsonb[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    task jsonb;
    no int;
    name text;
    names text[] := ARRAY(
        SELECT e.task ->> 'id' FROM unnest(tasks) AS e (task) WHERE e.task ->> 'id' IS NOT NULL
    );
    shards int[] := ARRAY(
        SELECT ("gnomon".shard_hash(u.name) % "gnomon".shard_count())::int
        FROM unnest(names) AS u (name)
    );
    living text[];
BEGIN
    FOR task, no IN
        SELECT e.task, e.no - 1 FROM unnest(tasks) WITH ORDINALITY AS e (task, no)
    LOOP
        PERFORM "gnomon".check_task(format('tasks[%s].', no), task);
    END LOOP;
    living := ARRAY(
        SELECT a.id FROM "gnomon".scheduled_action AS a
        WHERE a.shard_id = ANY (shards) AND a.id = ANY (names)
    );
    SELECT u.no, u.id INTO no, name
    FROM (
        SELECT
            e.no - 1 AS no, e.task ->> 'id' AS id,
            row_number() OVER (PARTITION BY e.task ->> 'id' ORDER BY e.no) AS nth
        FROM unnest(tasks) WITH ORDINALITY AS e (task, no)
        WHERE e.task ->> 'id' IS NOT NULL
    ) AS u
    WHERE u.nth > 1 OR u.id = ANY (living)
    ORDER BY u.no
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'tasks[%].id: an action with this id exists already (got %)', no, name
            USING ERRCODE = '23505';
    END IF;
    PERFORM "gnomon".refuse('tasks', 'one is not what the reference says', NULL);
END
$$;
CREATE FUNCTION gnomon.schedule(task_type text, payload jsonb, execute_at timestamp with time zone DEFAULT NULL::timestamp with time zone, id text DEFAULT NULL::text, max_attempts integer DEFAULT 3, options jsonb DEFAULT '{}'::jsonb) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    present timestamptz := clock_timestamp();
    made uuid := ("gnomon".guid_head((extract(epoch FROM present) * 1000)::bigint)
        || substr(gen_random_uuid()::text, 16))::uuid;
    name text := coalesce(schedule.id, made::text);
    starts timestamptz := coalesce(schedule.execute_at, present);
    payload_text text := schedule.payload::text;
    o record;
    shard int := ("gnomon".shard_hash(name) % "gnomon".shard_count())::int;
BEGIN
    o := "gnomon".options_of('', coalesce(schedule.options, '{}'));
    IF "gnomon".task_fits(
        schedule.id, schedule.task_type, schedule.payload, payload_text, starts, present,
        schedule.max_attempts, o.ends
    ) IS NOT TRUE THEN
        PERFORM "gnomon".check_task('', jsonb_build_object(
            'task_type', schedule.task_type, 'payload', schedule.payload,
            'execute_at', schedule.execute_at, 'id', schedule.id,
            'max_attempts', coalesce(schedule.max_attempts, 0), 'options', schedule.options));
        PERFORM "gnomon".refuse('task', 'is not what the reference says', schedule.task_type);
    END IF;
    INSERT INTO "gnomon".scheduled_action (
        shard_id, id, guid, spec, state, queue, priority, timeout_us, retention_us, keyed,
        created_at, updated_at, scheduled_at, occurrence_no, occurrence_at, expires_at,
        attempts, succeeded, failed, interrupted,
        consecutive_failures, consecutive_interruptions, occurrence_failures, creator
    )
    VALUES (
        shard, name, made, "gnomon".spec_text(
            schedule.task_type, payload_text, starts, schedule.max_attempts, o.retry_tail, o.tail),
        'active', o.queue, o.priority, o.timeout_us, o.retention_us, false, present, present,
        starts, 1, starts, o.ends, 0, 0, 0, 0, 0, 0, 0, NULL
    )
    ON CONFLICT (shard_id, id) DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'id: an action with this id exists already (got %)', name
            USING ERRCODE = '23505';
    END IF;
    INSERT INTO "gnomon".incoming_queue (shard_id, created_at, guid, queue, priority, scheduled_at)
    VALUES (shard, present, made, o.queue, o.priority, starts);
    INSERT INTO "gnomon".audit (at, guid, shard_id, count, verb, actor, id, face)
    VALUES (present, made, shard, 1, 'create', 'sql:' || session_user, name, 'sql');
    RETURN name;
END
$$;
CREATE FUNCTION gnomon.schedule_many(task_type text, payload jsonb[], execute_at timestamp with time zone[] DEFAULT NULL::timestamp with time zone[], id text[] DEFAULT NULL::text[], max_attempts integer DEFAULT 3, options jsonb DEFAULT '{}'::jsonb) RETURNS SETOF text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET work_mem TO '64MB'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    present timestamptz := clock_timestamp();
    head text := "gnomon".guid_head((extract(epoch FROM present) * 1000)::bigint);
    tail text := substr(gen_random_uuid()::text, 24);
    wanted int := cardinality(schedule_many.payload);
    o record;
    stored int;
BEGIN
    IF wanted IS NULL THEN
        PERFORM "gnomon".refuse('payload', 'must be an array of objects', NULL);
    ELSIF wanted <> cardinality(schedule_many.execute_at) THEN
        PERFORM "gnomon".refuse('execute_at', 'must be as many as there are payloads',
            cardinality(schedule_many.execute_at) || ', not ' || wanted);
    ELSIF wanted <> cardinality(schedule_many.id) THEN
        PERFORM "gnomon".refuse('id', 'must be as many as there are payloads',
            cardinality(schedule_many.id) || ', not ' || wanted);
    END IF;
    o := "gnomon".options_of('', coalesce(schedule_many.options, '{}'));
    BEGIN
        RETURN QUERY
        WITH stored AS (
            INSERT INTO "gnomon".scheduled_action (
                shard_id, id, guid, spec, state, queue, priority, timeout_us, retention_us, keyed,
                created_at, updated_at, scheduled_at, occurrence_no, occurrence_at, expires_at,
                attempts, succeeded, failed, interrupted,
                consecutive_failures, consecutive_interruptions, occurrence_failures, creator
            )
            SELECT
                ("gnomon".shard_hash(t.name) % "gnomon".shard_count())::int, t.name, t.guid,
                "gnomon".spec_text(
                    schedule_many.task_type, t.payload_text, t.starts, schedule_many.max_attempts,
                    o.retry_tail, o.tail),
                'active', o.queue, o.priority, o.timeout_us, o.retention_us, false, present, present,
                t.starts, 1, t.starts, o.ends, 0, 0, 0, 0, 0, 0, 0, NULL
            FROM (
                SELECT
                    n.guid, n.id, coalesce(n.id, n.guid::text) AS name, n.payload,
                    n.payload::text AS payload_text, coalesce(n.execute_at, present) AS starts
                FROM (
                    SELECT
                        e.payload, e.execute_at, e.id, (
                            head || overlay(lpad(to_hex(e.no), 6, '0') PLACING '-8' FROM 4 FOR 0)
                            || tail
                        )::uuid AS guid
                    FROM (
                        SELECT
                            generate_series(1, wanted) AS no,
                            unnest(schedule_many.payload) AS payload,
                            unnest(schedule_many.execute_at) AS execute_at,
                            unnest(schedule_many.id) AS id
                    ) AS e
                    OFFSET 0  -- so that each of these is computed once
                ) AS n
                OFFSET 0
            ) AS t
            WHERE "gnomon".task_fits(
                t.id, schedule_many.task_type, t.payload, t.payload_text, t.starts, present,
                schedule_many.max_attempts, o.ends
            )
            RETURNING shard_id, guid, queue, priority, scheduled_at, id
        ), announced AS (
            INSERT INTO "gnomon".incoming_queue
                (shard_id, created_at, guid, queue, priority, scheduled_at)
            SELECT s.shard_id, present, s.guid, s.queue, s.priority, s.scheduled_at
            FROM stored AS s
        ), audited AS (
            INSERT INTO "gnomon".audit (at, guid, shard_id, count, verb, actor, id, face)
            SELECT present, s.guid, s.shard_id, wanted, 'create', 'sql:' || session_user, s.id, 'sql'
            FROM (SELECT f.guid, f.shard_id, f.id FROM stored AS f ORDER BY f.guid LIMIT 1) AS s
        )
        SELECT s.id FROM stored AS s ORDER BY s.guid;
        GET DIAGNOSTICS stored = ROW_COUNT;
        IF stored = wanted THEN
            RETURN;
        END IF;
        RAISE data_exception;
    EXCEPTION WHEN data_exception OR unique_violation THEN
        NULL;  -- nothing of it is stored; what follows finds out why
    END;
    PERFORM "gnomon".refuse_tasks(ARRAY(
        SELECT jsonb_build_object(
            'task_type', schedule_many.task_type, 'payload', e.payload, 'execute_at', e.execute_at,
            'id', e.id, 'max_attempts', coalesce(schedule_many.max_attempts, 0),
            'options', schedule_many.options)
        FROM unnest(schedule_many.payload, schedule_many.execute_at, schedule_many.id)
            WITH ORDINALITY AS e (payload, execute_at, id, no)
        ORDER BY e.no
    ));
END
$$;
CREATE FUNCTION gnomon.seconds_of(field text, given jsonb, from_s numeric, to_s numeric) RETURNS numeric
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    seconds numeric;
BEGIN
    BEGIN
        seconds := CASE jsonb_typeof(given)
            WHEN 'number' THEN round((given #>> '{}')::numeric, 6)
            ELSE extract(epoch FROM (given #>> '{}')::interval)
        END;
    EXCEPTION WHEN data_exception THEN
        PERFORM "gnomon".refuse(field, 'must be a duration such as 30 or "5m"', given::text);
    END;
    IF seconds NOT BETWEEN from_s AND to_s THEN
        PERFORM "gnomon".refuse(
            field, format('must be between %s and %s seconds', from_s, to_s), given::text);
    END IF;
    RETURN seconds;
END
$$;
CREATE FUNCTION gnomon.shard_count() RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT 1 $$;
CREATE FUNCTION gnomon.shard_hash(name text) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    SELECT ('x' || encode(substring(sha256(convert_to(name, 'UTF8')) FROM 1 FOR 4), 'hex'))::bit(32)::bigint
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
CREATE FUNCTION gnomon.spec_text(kind text, payload_text text, starts timestamp with time zone, max_attempts integer, retry_tail text, tail text) RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT '{"action":{"type":"' || kind || '",' || substr(payload_text, 2)
        || ',"start_at":"' || to_char(starts AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        || '","retry":{"max":' || (max_attempts - 1) || retry_tail || '}' || tail || '}'
$$;
CREATE FUNCTION gnomon.task_fits(id text, kind text, payload jsonb, payload_text text, starts timestamp with time zone, present timestamp with time zone, max_attempts integer, ends timestamp with time zone) RETURNS boolean
    LANGUAGE sql STABLE
    AS $_$
    -- now() is when the transaction began: what was meant by it is not late, however long it took.
    SELECT (id IS NULL
        OR length(id) <= 200 AND id ~ '^[A-Za-z0-9._:@-]+$' AND id NOT IN ('.', '..'))
    AND jsonb_typeof(payload) = 'object' AND "gnomon".payload_fits(kind, payload, payload_text)
    AND starts < '9000-01-01Z' AND (starts >= present - interval '10 minutes' OR starts = now())
    AND max_attempts BETWEEN 1 AND 1000001
    AND (ends IS NULL OR ends > starts AND ends > present)
$_$;
CREATE TABLE gnomon.attempt_log (
    guid uuid NOT NULL,
    attempt_id uuid NOT NULL,
    began_at gnomon.moment NOT NULL,
    ended_at gnomon.moment,
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
    began_at gnomon.moment NOT NULL,
    ended_at gnomon.moment,
    occurrence_no bigint NOT NULL,
    shard_id integer NOT NULL,
    attempt_no integer NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    outcome text NOT NULL,
    error text,
    answer text,
    owner text
);
CREATE TABLE gnomon.attempt_progress (
    attempt_id uuid NOT NULL,
    at timestamp with time zone NOT NULL,
    fraction double precision NOT NULL,
    shard_id integer NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    said text NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000');
CREATE TABLE gnomon.audit (
    at timestamp with time zone NOT NULL,
    guid uuid NOT NULL,
    shard_id integer NOT NULL,
    count integer NOT NULL,
    verb text NOT NULL,
    actor text NOT NULL,
    id text NOT NULL,
    face text NOT NULL
)
PARTITION BY RANGE (at);
CREATE TABLE gnomon.audit_default (
    at timestamp with time zone NOT NULL,
    guid uuid NOT NULL,
    shard_id integer NOT NULL,
    count integer NOT NULL,
    verb text NOT NULL,
    actor text NOT NULL,
    id text NOT NULL,
    face text NOT NULL
);
CREATE TABLE gnomon.changed_entity (
    first_at timestamp with time zone NOT NULL,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    since bigint NOT NULL,
    shard_id integer NOT NULL,
    entity_key text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
CREATE TABLE gnomon.declared_action (
    set_no bigint NOT NULL,
    paused_as uuid,
    shard_id integer NOT NULL,
    is_removed boolean NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    program text NOT NULL COLLATE pg_catalog."C",
    fingerprint text NOT NULL
);
CREATE TABLE gnomon.entity (
    changed_at gnomon.moment NOT NULL,
    epoch bigint NOT NULL,
    version bigint NOT NULL,
    saves bigint NOT NULL,
    shard_id integer NOT NULL,
    keeps_states boolean NOT NULL,
    entity_key text NOT NULL COLLATE pg_catalog."C",
    doc text
)
WITH (fillfactor='80');
CREATE TABLE gnomon.entity_change (
    root uuid NOT NULL,
    at gnomon.moment NOT NULL,
    epoch bigint NOT NULL,
    version bigint NOT NULL,
    shard_id integer NOT NULL,
    depth integer NOT NULL,
    entity_key text NOT NULL COLLATE pg_catalog."C",
    author text NOT NULL,
    paths text NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
CREATE TABLE gnomon.finished_action (
    guid uuid NOT NULL,
    created_at gnomon.moment NOT NULL,
    updated_at gnomon.moment NOT NULL,
    finished_at gnomon.moment NOT NULL,
    purge_at timestamp with time zone NOT NULL,
    occurrence_at gnomon.moment NOT NULL,
    began_at gnomon.moment,
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
    created_at gnomon.moment NOT NULL,
    updated_at gnomon.moment NOT NULL,
    finished_at gnomon.moment NOT NULL,
    purge_at timestamp with time zone NOT NULL,
    occurrence_at gnomon.moment NOT NULL,
    began_at gnomon.moment,
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
CREATE TABLE gnomon.function_set (
    began_at gnomon.moment NOT NULL,
    seen_at gnomon.moment NOT NULL,
    program text NOT NULL COLLATE pg_catalog."C",
    fingerprint text NOT NULL COLLATE pg_catalog."C",
    functions text NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500');
CREATE TABLE gnomon.history (
    at timestamp with time zone NOT NULL,
    worker_id uuid NOT NULL,
    span integer NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    counts text NOT NULL
);
CREATE TABLE gnomon.incoming_queue (
    created_at timestamp with time zone NOT NULL,
    guid uuid NOT NULL,
    scheduled_at timestamp with time zone NOT NULL,
    attempt_id uuid,
    began_at timestamp with time zone,
    deadline_at timestamp with time zone,
    reserved_until timestamp with time zone,
    shard_id integer NOT NULL,
    priority smallint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    owner text
)
WITH (fillfactor='45', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
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
    owner text,
    need text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
CREATE TABLE gnomon.program (
    seen_at gnomon.moment NOT NULL,
    set_no bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    fingerprint text NOT NULL,
    known text NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500');
CREATE TABLE gnomon.stage_queue (
    ready_at gnomon.moment,
    timer_at gnomon.moment,
    first_at gnomon.moment NOT NULL,
    root uuid NOT NULL,
    seq bigint NOT NULL,
    shard_id integer NOT NULL,
    depth integer NOT NULL,
    attempts integer NOT NULL,
    lane smallint NOT NULL,
    status text NOT NULL COLLATE pg_catalog."C",
    entity_key text NOT NULL COLLATE pg_catalog."C",
    stage text NOT NULL COLLATE pg_catalog."C",
    reasons text[] NOT NULL,
    error text,
    note text,
    CONSTRAINT stage_queue_values_check CHECK (((status = ANY (ARRAY['sleeping'::text, 'ready'::text, 'quarantined'::text, 'looping'::text])) AND (lane = ANY (ARRAY[0, 1]))))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
CREATE VIEW gnomon.queue_inverted AS
 SELECT q.shard_id,
    q.entity_key,
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
    created_at gnomon.moment NOT NULL,
    updated_at gnomon.moment NOT NULL,
    scheduled_at gnomon.moment,
    occurrence_at gnomon.moment NOT NULL,
    expires_at gnomon.moment,
    occurrence_no bigint NOT NULL,
    timeout_us gnomon.timeout_us NOT NULL,
    retention_us gnomon.retention_us NOT NULL,
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
    state gnomon.live_state NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    spec text NOT NULL,
    last_attempt text,
    creator text COLLATE pg_catalog."C",
    series uuid,
    reason text,
    paused_until gnomon.moment
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
    first_seen_at gnomon.moment NOT NULL,
    last_seen_at gnomon.moment NOT NULL,
    debounce interval NOT NULL,
    revision integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    watch text NOT NULL,
    writes text NOT NULL,
    CONSTRAINT stage_values_check CHECK (((revision >= 0) AND ((debounce >= '00:00:00'::interval) AND (debounce <= '1 day'::interval))))
);
CREATE TABLE gnomon.stage_backfill (
    started_at timestamp with time zone NOT NULL,
    shard_id integer NOT NULL,
    ended boolean NOT NULL,
    stage text NOT NULL COLLATE pg_catalog."C",
    cursor text COLLATE pg_catalog."C",
    reason text NOT NULL
);
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
    entity_key text NOT NULL COLLATE pg_catalog."C",
    author text NOT NULL,
    paths text NOT NULL,
    key text NOT NULL,
    doc text,
    state_type text,
    state_body bytea,
    error text
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000');
CREATE TABLE gnomon.stage_owner (
    shard_id integer NOT NULL,
    lease_guid uuid NOT NULL,
    worker_id uuid NOT NULL
);
CREATE TABLE gnomon.stage_server (
    seen_at timestamp with time zone NOT NULL,
    worker_id uuid NOT NULL,
    stage text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE gnomon.stage_state (
    version bigint NOT NULL,
    shard_id integer NOT NULL,
    revision integer NOT NULL,
    entity_key text NOT NULL COLLATE pg_catalog."C",
    stage text NOT NULL COLLATE pg_catalog."C",
    type text,
    body bytea NOT NULL
)
WITH (fillfactor='80');
CREATE TABLE gnomon.target_login (
    target text NOT NULL COLLATE pg_catalog."C",
    role name NOT NULL
);
CREATE VIEW gnomon.tasks AS
 SELECT a.id,
    a.occurrence_at AS execute_at,
    (s.spec #>> '{action,type}'::text[]) AS task_type,
    ((s.spec -> 'action'::text) - 'type'::text) AS payload,
        CASE
            WHEN (q.running OR (i.guid IS NOT NULL)) THEN 'processing'::text
            ELSE 'pending'::text
        END AS status,
    COALESCE(q.attempts,
        CASE
            WHEN (i.guid IS NOT NULL) THEN 1
            ELSE a.attempts
        END) AS attempts,
    (COALESCE(((s.spec #>> '{retry,max}'::text[]))::integer, 0) + 1) AS max_attempts,
    (gnomon.spec_json(a.last_attempt) ->> 'error'::text) AS error_message,
    a.created_at,
    a.updated_at,
    NULL::timestamp with time zone AS completed_at
   FROM (((gnomon.scheduled_action a
     CROSS JOIN LATERAL ( SELECT gnomon.spec_json(a.spec) AS spec) s)
     LEFT JOIN gnomon.processing_queue q ON (((q.guid = a.guid) AND (q.shard_id = a.shard_id))))
     LEFT JOIN gnomon.incoming_queue i ON (((i.shard_id = a.shard_id) AND (i.created_at = (a.updated_at)::timestamp with time zone) AND (i.guid = a.guid) AND (i.attempt_id IS NOT NULL))))
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
    created_at gnomon.moment NOT NULL,
    expires_at gnomon.moment,
    revoked_at gnomon.moment,
    rate double precision,
    live_max integer,
    digest bytea NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    scopes text[] NOT NULL,
    CONSTRAINT token_values_check CHECK (((rate > (0)::double precision) AND (rate < 'Infinity'::double precision) AND (array_position(scopes, NULL::text) IS NULL)))
);
CREATE TABLE gnomon.work_limit (
    rate double precision,
    parallel integer,
    burst integer,
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT work_limit_values_check CHECK (((kind = ANY (ARRAY['queue'::text, 'target'::text, 'stage'::text])) AND (COALESCE((parallel)::double precision, rate) IS NOT NULL) AND ((parallel >= 0) AND (parallel <= 1000000)) AND ((rate >= (0)::double precision) AND (rate <= (1000000)::double precision)) AND ((burst >= 1) AND (burst <= 1000000))))
)
WITH (fillfactor='10', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500');
CREATE TABLE gnomon.worker (
    worker_id uuid NOT NULL,
    started_at timestamp with time zone NOT NULL,
    heartbeat_at timestamp with time zone NOT NULL,
    shards integer NOT NULL,
    owner text NOT NULL,
    process text,
    offer text DEFAULT ''::text NOT NULL
)
WITH (fillfactor='10');
ALTER TABLE ONLY gnomon.attempt_log ATTACH PARTITION gnomon.attempt_log_default DEFAULT;
ALTER TABLE ONLY gnomon.audit ATTACH PARTITION gnomon.audit_default DEFAULT;
ALTER TABLE ONLY gnomon.finished_action ATTACH PARTITION gnomon.finished_action_default DEFAULT;
ALTER TABLE ONLY gnomon.attempt_log
    ADD CONSTRAINT attempt_log_pkey PRIMARY KEY (attempt_id, shard_id, began_at);
ALTER TABLE ONLY gnomon.attempt_log_default
    ADD CONSTRAINT attempt_log_default_pkey PRIMARY KEY (attempt_id, shard_id, began_at);
ALTER TABLE ONLY gnomon.attempt_progress
    ADD CONSTRAINT attempt_progress_pkey PRIMARY KEY (shard_id, id);
ALTER TABLE ONLY gnomon.changed_entity
    ADD CONSTRAINT changed_entity_pkey PRIMARY KEY (shard_id, entity_key);
ALTER TABLE ONLY gnomon.declared_action
    ADD CONSTRAINT declared_action_pkey PRIMARY KEY (shard_id, id);
ALTER TABLE ONLY gnomon.entity_change
    ADD CONSTRAINT entity_change_pkey PRIMARY KEY (shard_id, entity_key, epoch, version);
ALTER TABLE ONLY gnomon.entity
    ADD CONSTRAINT entity_pkey PRIMARY KEY (shard_id, entity_key);
ALTER TABLE ONLY gnomon.finished_action
    ADD CONSTRAINT finished_action_pkey PRIMARY KEY (shard_id, id, guid, finished_at);
ALTER TABLE ONLY gnomon.finished_action_default
    ADD CONSTRAINT finished_action_default_pkey PRIMARY KEY (shard_id, id, guid, finished_at);
ALTER TABLE ONLY gnomon.function_set
    ADD CONSTRAINT function_set_pkey PRIMARY KEY (program, fingerprint);
ALTER TABLE ONLY gnomon.history
    ADD CONSTRAINT history_pkey PRIMARY KEY (queue, at, span, worker_id);
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
ALTER TABLE ONLY gnomon.program
    ADD CONSTRAINT program_pkey PRIMARY KEY (name);
ALTER TABLE ONLY gnomon.scheduled_action
    ADD CONSTRAINT scheduled_action_pkey PRIMARY KEY (shard_id, id);
ALTER TABLE ONLY gnomon.shard_lock
    ADD CONSTRAINT shard_lock_pkey PRIMARY KEY (shard_id);
ALTER TABLE ONLY gnomon.sql_success
    ADD CONSTRAINT sql_success_pkey PRIMARY KEY (guid, shard_id);
ALTER TABLE ONLY gnomon.stage_backfill
    ADD CONSTRAINT stage_backfill_pkey PRIMARY KEY (shard_id, stage);
ALTER TABLE ONLY gnomon.stage_outbox
    ADD CONSTRAINT stage_outbox_pkey PRIMARY KEY (shard_id, entity_key, sink, n);
ALTER TABLE ONLY gnomon.stage_owner
    ADD CONSTRAINT stage_owner_pkey PRIMARY KEY (shard_id);
ALTER TABLE ONLY gnomon.stage
    ADD CONSTRAINT stage_pkey PRIMARY KEY (name);
ALTER TABLE ONLY gnomon.stage_queue
    ADD CONSTRAINT stage_queue_pkey PRIMARY KEY (shard_id, entity_key, stage);
ALTER TABLE ONLY gnomon.stage_server
    ADD CONSTRAINT stage_server_pkey PRIMARY KEY (worker_id, stage);
ALTER TABLE ONLY gnomon.stage_state
    ADD CONSTRAINT stage_state_pkey PRIMARY KEY (shard_id, entity_key, stage);
ALTER TABLE ONLY gnomon.target_login
    ADD CONSTRAINT target_login_pkey PRIMARY KEY (target, role);
ALTER TABLE ONLY gnomon.token
    ADD CONSTRAINT token_digest_key UNIQUE (digest);
ALTER TABLE ONLY gnomon.token
    ADD CONSTRAINT token_pkey PRIMARY KEY (token_id);
ALTER TABLE ONLY gnomon.work_limit
    ADD CONSTRAINT work_limit_pkey PRIMARY KEY (kind, name);
ALTER TABLE ONLY gnomon.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (worker_id);
CREATE INDEX attempt_log_cancelling_idx ON ONLY gnomon.attempt_log USING btree (owner, began_at) WHERE (outcome = 'cancelling'::text);
CREATE INDEX attempt_log_default_owner_began_at_idx ON gnomon.attempt_log_default USING btree (owner, began_at) WHERE (outcome = 'cancelling'::text);
CREATE INDEX attempt_log_id_idx ON ONLY gnomon.attempt_log USING btree (shard_id, id, began_at);
CREATE INDEX attempt_log_default_shard_id_id_began_at_idx ON gnomon.attempt_log_default USING btree (shard_id, id, began_at);
CREATE INDEX audit_at_idx ON ONLY gnomon.audit USING btree (at);
CREATE INDEX audit_default_at_idx ON gnomon.audit_default USING btree (at);
CREATE INDEX changed_entity_first_idx ON gnomon.changed_entity USING btree (shard_id, first_at);
CREATE INDEX declared_action_program_idx ON gnomon.declared_action USING btree (program);
CREATE INDEX entity_change_at_idx ON gnomon.entity_change USING brin (at);
CREATE INDEX entity_kept_idx ON gnomon.entity USING btree (shard_id, entity_key) WHERE keeps_states;
CREATE INDEX finished_action_dead_idx ON ONLY gnomon.finished_action USING btree (queue, purge_at) WHERE (state = 'dead'::text);
CREATE INDEX finished_action_guid_idx ON ONLY gnomon.finished_action USING btree (guid) WHERE keyed;
CREATE INDEX finished_action_default_guid_idx ON gnomon.finished_action_default USING btree (guid) WHERE keyed;
CREATE INDEX finished_action_purge_idx ON ONLY gnomon.finished_action USING brin (purge_at);
CREATE INDEX finished_action_default_purge_at_idx ON gnomon.finished_action_default USING brin (purge_at);
CREATE INDEX finished_action_default_queue_purge_at_idx ON gnomon.finished_action_default USING btree (queue, purge_at) WHERE (state = 'dead'::text);
CREATE INDEX finished_action_trouble_idx ON ONLY gnomon.finished_action USING btree (shard_id, id) WHERE (state <> 'done'::text);
CREATE INDEX finished_action_default_shard_id_id_idx ON gnomon.finished_action_default USING btree (shard_id, id) WHERE (state <> 'done'::text);
CREATE INDEX history_span_idx ON gnomon.history USING btree (span, at);
CREATE INDEX processing_queue_lane_idx ON gnomon.processing_queue USING btree (shard_id, queue, priority, need, scheduled_at) INCLUDE (running);
CREATE INDEX processing_queue_need_idx ON gnomon.processing_queue USING btree (need, shard_id, queue, priority, scheduled_at) WHERE (need <> ''::text);
CREATE INDEX processing_queue_running_idx ON gnomon.processing_queue USING btree (shard_id, scheduled_at) WHERE running;
CREATE INDEX scheduled_action_creator_idx ON gnomon.scheduled_action USING btree (creator) WHERE (creator IS NOT NULL);
CREATE INDEX scheduled_action_expiry_idx ON gnomon.scheduled_action USING btree (shard_id, expires_at) WHERE (expires_at IS NOT NULL);
CREATE INDEX scheduled_action_failing_idx ON gnomon.scheduled_action USING btree (shard_id, id) WHERE (occurrence_failures > 0);
CREATE INDEX scheduled_action_guid_idx ON gnomon.scheduled_action USING btree (guid);
CREATE INDEX scheduled_action_paused_idx ON gnomon.scheduled_action USING btree (shard_id, id) WHERE ((state)::text = 'paused'::text);
CREATE INDEX scheduled_action_paused_until_idx ON gnomon.scheduled_action USING btree (shard_id, paused_until, id) WHERE (paused_until IS NOT NULL);
CREATE INDEX scheduled_action_recurring_idx ON gnomon.scheduled_action USING btree (shard_id, id) WHERE (POSITION(('"policy":{'::text) IN (spec)) > 0);
CREATE INDEX scheduled_action_series_idx ON gnomon.scheduled_action USING btree (series) WHERE (series IS NOT NULL);
CREATE INDEX stage_outbox_late_idx ON gnomon.stage_outbox USING btree (shard_id, sink, at) WHERE (ready_at > at);
CREATE INDEX stage_outbox_parked_idx ON gnomon.stage_outbox USING btree (entity_key, sink, n) WHERE (ready_at IS NULL);
CREATE INDEX stage_outbox_ready_idx ON gnomon.stage_outbox USING btree (shard_id, sink, ready_at, n) WHERE (ready_at IS NOT NULL);
CREATE INDEX stage_queue_parked_idx ON gnomon.stage_queue USING btree (entity_key, stage) WHERE (status = ANY (ARRAY['quarantined'::text, 'looping'::text]));
CREATE INDEX stage_queue_ready_idx ON gnomon.stage_queue USING btree (shard_id, stage, lane, ready_at) WHERE (status = 'ready'::text);
CREATE INDEX stage_queue_timer_idx ON gnomon.stage_queue USING btree (shard_id, timer_at) WHERE ((timer_at IS NOT NULL) AND (status = ANY (ARRAY['sleeping'::text, 'ready'::text])));
CREATE INDEX token_name_idx ON gnomon.token USING btree (name, created_at);
ALTER INDEX gnomon.attempt_log_cancelling_idx ATTACH PARTITION gnomon.attempt_log_default_owner_began_at_idx;
ALTER INDEX gnomon.attempt_log_pkey ATTACH PARTITION gnomon.attempt_log_default_pkey;
ALTER INDEX gnomon.attempt_log_id_idx ATTACH PARTITION gnomon.attempt_log_default_shard_id_id_began_at_idx;
ALTER INDEX gnomon.audit_at_idx ATTACH PARTITION gnomon.audit_default_at_idx;
ALTER INDEX gnomon.finished_action_guid_idx ATTACH PARTITION gnomon.finished_action_default_guid_idx;
ALTER INDEX gnomon.finished_action_pkey ATTACH PARTITION gnomon.finished_action_default_pkey;
ALTER INDEX gnomon.finished_action_purge_idx ATTACH PARTITION gnomon.finished_action_default_purge_at_idx;
ALTER INDEX gnomon.finished_action_dead_idx ATTACH PARTITION gnomon.finished_action_default_queue_purge_at_idx;
ALTER INDEX gnomon.finished_action_trouble_idx ATTACH PARTITION gnomon.finished_action_default_shard_id_id_idx;
