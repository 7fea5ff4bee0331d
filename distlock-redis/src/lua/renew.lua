-- Extends the lock only if this token has it alone (R10); never creates it, never shortens it (Redis 6.2
-- has no PEXPIRE GT). KEYS lock, queue, and the counter where a value is drawn; or the lock alone, while its slot of a
-- cluster moves key by key: then it is not known whether others wait. ARGV[1] token, [2] ttl in
-- ms, [3] how many values to draw from the counter as well (R5), [4] a number that no other renewal has.
-- Answers with 0 if it is not this token's, 1 if it is, 2 if others stand in the queue; with that
-- number, which says whose answer it is; and with the last of the values, if some were drawn.
-- (`pcall`: a lock that is held together is no string, and not this token's. Whatever else is refused is an error:
-- the token may hold it.)
local v = redis.pcall('GET', KEYS[1])
if type(v) == 'table' and not string.find(v.err, 'WRONGTYPE', 1, true) then
  v = redis.call('GET', KEYS[1])
end
if v ~= ARGV[1] then
  return {0, tonumber(ARGV[4])}
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
local state = KEYS[2] and 1 + redis.call('EXISTS', KEYS[2]) or 1
if ARGV[3] == '0' then
  return {state, tonumber(ARGV[4])}
end
local t = redis.call('TIME')
local at = t[1] * 1000000 + t[2]
local n = math.max(redis.call('INCR', KEYS[3]), at) + ARGV[3] - 1
redis.call('SET', KEYS[3], string.format('%.0f', n))
return {state, tonumber(ARGV[4]), n}
