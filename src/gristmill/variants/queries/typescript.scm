(class_declaration name: (type_identifier) @hold)
(enum_declaration name: (identifier) @hold)
(internal_module) @scope
(internal_module name: (identifier) @hold)
(abstract_class_declaration) @scope

; The parameters of a function type are visible only inside it.
(function_type) @scope
(constructor_type) @scope
(function_signature) @scope
(method_signature) @scope
(abstract_method_signature) @scope
(call_signature) @scope
(construct_signature) @scope
(index_signature) @pin
(function_signature name: (identifier) @keep.outer)

(required_parameter pattern: (identifier) @define)
(required_parameter pattern: (rest_pattern (identifier) @define))
(required_parameter pattern: (array_pattern (identifier) @define))
(required_parameter pattern: (array_pattern [(assignment_pattern) (rest_pattern)] @hold))
(required_parameter pattern: (object_pattern (pair_pattern value: (identifier) @define)))
(required_parameter pattern: (object_pattern (pair_pattern value: (assignment_pattern left: (identifier) @define))))
(required_parameter pattern: (object_pattern (rest_pattern (identifier) @define)))
(optional_parameter pattern: (identifier) @define)

; constructor(private x) declares a field.
(required_parameter (accessibility_modifier) pattern: (identifier) @keep)
(required_parameter (override_modifier) pattern: (identifier) @keep)
(required_parameter "readonly" pattern: (identifier) @keep)
(optional_parameter (accessibility_modifier) pattern: (identifier) @keep)
(optional_parameter (override_modifier) pattern: (identifier) @keep)
(optional_parameter "readonly" pattern: (identifier) @keep)

; The variables of the body are not visible in default values.
(required_parameter value: (_) @pin)
(optional_parameter value: (_) @pin)

(with_statement) @dynamic
