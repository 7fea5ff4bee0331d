-- The woken owner of a reserved lock confirms it (R3): first, before closures are made that this does
-- not need. (`pcall`: a lock that is held together is no string.)
local v, n, limit, first = redis.pcall('GET', KEYS[1]), 0, 1, nil
if v == ARGV[1] then
  local t = redis.call('TIME')
  local at = t[1] * 1000000 + t[2]
  if ARGV[5] ~= '0' and at > tonumber(ARGV[5]) then
    return {3, ARGV[1], at}
  end
  -- Counted before: a queue that is empty is gone, and while its slot moves its node refuses what is gone.
  local behind = redis.call('ZCARD', KEYS[2])
  if behind > 0 then
    behind = behind - redis.call('ZREM', KEYS[2], ARGV[1])
  end
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  local n = redis.call('INCR', KEYS[3])
  if n < at then
    n = at
    redis.call('SET', KEYS[3], string.format('%.0f', n))
  end
  return {1, ARGV[1], n, behind}
end
