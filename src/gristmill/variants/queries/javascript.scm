(class_declaration name: (identifier) @keep.outer)
(class name: (identifier) @keep)

(formal_parameters (identifier) @define)
(formal_parameters (assignment_pattern left: (identifier) @define))
(formal_parameters (rest_pattern (identifier) @define))
(formal_parameters (array_pattern (identifier) @define))
(formal_parameters (array_pattern [(assignment_pattern) (rest_pattern)] @hold))
(formal_parameters (object_pattern (pair_pattern value: (identifier) @define)))
(formal_parameters (object_pattern (pair_pattern value: (assignment_pattern left: (identifier) @define))))
(formal_parameters (object_pattern (rest_pattern (identifier) @define)))
(formal_parameters (assignment_pattern left: [(array_pattern) (object_pattern)] @hold))

; The variables of the body are not visible in default values.
(formal_parameters (assignment_pattern right: (_) @pin))

; <div/> is not a variable.
(jsx_opening_element name: (identifier) @skip)
(jsx_closing_element name: (identifier) @skip)
(jsx_self_closing_element name: (identifier) @skip)

(with_statement) @dynamic
