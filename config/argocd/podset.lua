-- The health of a PodSet, from its conditions. One that is absent does not hold.
local status = obj.status or {}
local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end

local function holds(name)
  return conditions[name] ~= nil and conditions[name].status == "True"
end

local function health(verdict, name)
  local condition = conditions[name]
  return { status = verdict, message = condition.reason .. ": " .. (condition.message or "") }
end

-- A spec is not acknowledged while surplus pods cannot be deleted.
if holds("ReplicaFailure") and conditions.ReplicaFailure.reason == "FailedDelete" then
  return health("Degraded", "ReplicaFailure")
end
-- What is known of an older spec says nothing about this one.
if (status.observedGeneration or 0) < (obj.metadata.generation or 0) then
  return { status = "Progressing", message = "the operator has not acted on the last change yet" }
end
if holds("Stalled") then
  return health("Degraded", "Stalled")
end
-- A rollout whose pods are rejected may go on by itself. It has a deadline, after which it is Stalled.
if holds("ReplicaFailure") and (conditions.Ready == nil or conditions.Ready.reason ~= "RolloutInProgress") then
  return health("Degraded", "ReplicaFailure")
end
if holds("Ready") then
  return health("Healthy", "Ready")
end
if conditions.Ready ~= nil and conditions.Ready.reason == "PodsFailing" then
  return health("Degraded", "Ready")
end
if conditions.Ready ~= nil then
  return health("Progressing", "Ready")
end
return { status = "Progressing", message = "the operator has not seen it yet" }
