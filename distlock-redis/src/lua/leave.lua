-- Without waiters: leave the holders of the lock, which then ends with the last of their leases.
local v, n, first
if #ARGV == 1 and redis.call('EXISTS', KEYS[2]) == 0 then
  -- (`pcall`: a lock that one has alone is no set. Whatever else is refused is an error: the token may hold it.)
  local left = redis.pcall('ZREM', KEYS[1], ARGV[1])
  if type(left) == 'table' and not string.find(left.err, 'WRONGTYPE', 1, true) then
    left = redis.call('ZREM', KEYS[1], ARGV[1])
  end
  if left ~= 1 then
    return 0
  end
  local till = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
  if till then
    redis.call('PEXPIREAT', KEYS[1], till)
  end
  return 1
end
v, n = redis.pcall('GET', KEYS[1]), 0
