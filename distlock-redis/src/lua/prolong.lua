-- What `renew` is to a token that has the lock alone, this is to one that holds it with others. A lease
-- that has ended is not extended, even if its place was not needed since.
local t, till = redis.call('TIME'), redis.pcall('ZSCORE', KEYS[1], ARGV[1])
local at = t[1] * 1000000 + t[2]
local now = math.floor(at / 1000)
-- (`pcall`: an exclusive lock is no sorted set, and not this token's. Any other refusal is an error, because the
-- token may hold the lock.)
if type(till) == 'table' and not string.find(till.err, 'WRONGTYPE', 1, true) then
  till = redis.call('ZSCORE', KEYS[1], ARGV[1])
end
if type(till) ~= 'string' or tonumber(till) < now then
  return {0, tonumber(ARGV[4])}
end
if tonumber(till) < now + ARGV[2] then
  -- The end of the lock first: a full server does not refuse it, and then nothing that is written behind it.
  local last = tonumber(redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2])
  redis.call('PEXPIREAT', KEYS[1], math.max(last, now + ARGV[2]))
  redis.call('ZADD', KEYS[1], 'XX', now + ARGV[2], ARGV[1])
end
local state = KEYS[2] and 1 + redis.call('EXISTS', KEYS[2]) or 1
if ARGV[3] == '0' then
  return {state, tonumber(ARGV[4])}
end
local n = math.max(redis.call('INCR', KEYS[3]), at) + ARGV[3] - 1
redis.call('SET', KEYS[3], string.format('%.0f', n))
return {state, tonumber(ARGV[4]), n}
