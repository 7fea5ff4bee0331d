-- Compare and delete: frees the lock only if this token owns it, or has it free itself.
-- KEYS[1] lock, ARGV[1] token, ARGV[2] ms to keep it for, 0 to free it now.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if ARGV[2] == '0' then
  return redis.call('DEL', KEYS[1])
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
