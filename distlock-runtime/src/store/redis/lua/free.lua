-- Without waiters: compare and delete, and nothing else.
-- (`pcall`: a lock that is held together is no string.)
local v, n = redis.pcall('GET', KEYS[1]), 0
if #ARGV == 1 and v == ARGV[1] and redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 1
end
