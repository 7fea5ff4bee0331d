-- A token that is not alone takes the lock while the queue is empty, or confirms that it was let in: first,
-- before closures are made that this does not need.
local t = redis.call('TIME')
local at = t[1] * 1000000 + t[2]
if ARGV[5] ~= '0' and at > tonumber(ARGV[5]) then
  return {3, ARGV[1], at}
end
local limit = tonumber(string.match(ARGV[1], '[sn](%d+)$')) or math.huge
-- (`pcall`: a lock that one has alone is no set.)
local v, n, first = false, redis.pcall('ZCARD', KEYS[1]), nil
if type(n) == 'table' then
  if not string.find(n.err, 'WRONGTYPE', 1, true) then
    redis.call('ZCARD', KEYS[1])
  end
  v, n = redis.call('GET', KEYS[1]), 0
else
  local now, behind = math.floor(at / 1000), redis.call('ZCARD', KEYS[2])
  local mine = n > 0 and redis.call('ZSCORE', KEYS[1], ARGV[1])
  mine = mine and tonumber(mine) >= now
  -- A set that does not expire was not made by us.
  if mine or behind == 0 and n < limit and (n == 0 or redis.call('PTTL', KEYS[1]) ~= -1) then
    local till = now + ARGV[2]
    local last = n > 0 and redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
    last = math.max(till, tonumber(last or 0))
    -- A confirmation first writes what a full server does not refuse: then it refuses nothing behind it.
    if mine then
      redis.call('PEXPIREAT', KEYS[1], last)
    end
    redis.call('ZADD', KEYS[1], 'GT', till, ARGV[1])
    if not mine then
      redis.call('PEXPIREAT', KEYS[1], last)
    end
    if behind > 0 then
      behind = behind - redis.call('ZREM', KEYS[2], ARGV[1])
    end
    local n = redis.call('INCR', KEYS[3])
    if n < at then
      n = at
      redis.call('SET', KEYS[3], string.format('%.0f', n))
    end
    return {1, ARGV[1], n, behind}
  end
end
