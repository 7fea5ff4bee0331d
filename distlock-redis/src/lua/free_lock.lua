-- Frees a lock that this token has alone, and nothing else: while its slot of a cluster moves key by key, its queue may
-- be on another node. KEYS: the lock; ARGV[1] token.
-- (`pcall`: a shared lock is no string. Any other refusal is an error, because the token may hold the lock.)
local v = redis.pcall('GET', KEYS[1])
if type(v) == 'table' and not string.find(v.err, 'WRONGTYPE', 1, true) then
  v = redis.call('GET', KEYS[1])
end
if v == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
