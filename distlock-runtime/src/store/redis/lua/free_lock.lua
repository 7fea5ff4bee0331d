-- Frees a lock that this token has alone, and nothing else: while its slot of a cluster moves key by key, its queue may
-- be on another node. KEYS: the lock; ARGV[1] token.
-- (`pcall`: a lock that is held together is no string. Whatever else is refused is an error: the token may hold it.)
local v = redis.pcall('GET', KEYS[1])
if type(v) == 'table' and not string.find(v.err, 'WRONGTYPE', 1, true) then
  v = redis.call('GET', KEYS[1])
end
if v == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
