-- The health of a MyCustomResource: whether its status is current. That a friend is missing is an answer, not an illness.
local status = obj.status or {}
if (status.observedGeneration or 0) < (obj.metadata.generation or 0) then
  return { status = "Progressing", message = "the operator has not acted on the last change yet" }
end
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Ready" and condition.status == "True" then
    return { status = "Healthy", message = condition.reason .. ": " .. (condition.message or "") }
  end
end
return { status = "Progressing", message = "the operator has not seen it yet" }
