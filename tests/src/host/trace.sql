-- Questions to the trace processor, in the order of their answers in trace.rs.
select name, value from stats where severity != 'info' and value > 0;
select p.name, s.dur from slice s join process_track t on s.track_id = t.id
    join process p using (upid) join args a using (arg_set_id)
    where s.name = 'preempted (LHP)' and a.key = 'debug.why'
    and a.string_value = 'injected' order by s.ts;
select p.name, t.name, count(*), max(s.depth), min(s.dur) from slice s
    join process_track t on s.track_id = t.id join process p using (upid)
    where t.name glob 'slot *' group by t.id;
select count(*) from (select ts + dur as till, lead(ts) over
    (partition by track_id order by ts) as next from slice s
    join process_track t on s.track_id = t.id where t.name glob 'slot *')
    where till > next;
select count(*) from slice join args using (arg_set_id)
    where name = 'kick' and key = 'debug.kick_to_grant_ns';
select count(*) from flow join slice o on slice_out = o.id
    join slice i on slice_in = i.id
    where o.name = 'kick' and i.name = 'running' and i.ts >= o.ts;
select count(distinct t.name) from counter c join counter_track t on c.track_id = t.id;
