-- Without waiters: compare and delete, and nothing else.
local v = redis.call('GET', KEYS[1])
if #ARGV == 1 and v == ARGV[1] and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end
