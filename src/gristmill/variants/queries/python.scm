; In a function, the names of enclosing functions are visible, but not those of an enclosing class.
(function_definition) @scope.function
(lambda) @scope.function
(class_definition) @scope.class
(list_comprehension) @scope.local
(set_comprehension) @scope.local
(dictionary_comprehension) @scope.local
(generator_expression) @scope.local

; These expressions are evaluated in the enclosing scope, before the new scope begins.
(default_parameter value: (_) @outside)
(typed_default_parameter type: (_) @outside value: (_) @outside)
(typed_parameter type: (_) @outside)
(function_definition return_type: (_) @outside)
(class_definition superclasses: (_) @outside)
(list_comprehension body: (_) . (comment)* . (for_in_clause right: (_) @outside))
(set_comprehension body: (_) . (comment)* . (for_in_clause right: (_) @outside))
(dictionary_comprehension body: (_) . (comment)* . (for_in_clause right: (_) @outside))
(generator_expression body: (_) . (comment)* . (for_in_clause right: (_) @outside))

(assignment left: (identifier) @define)
(augmented_assignment left: (identifier) @define)
(for_statement left: (identifier) @define)
(for_in_clause left: (identifier) @define)
(pattern_list (identifier) @define)
(tuple_pattern (identifier) @define)
(list_pattern (identifier) @define)
(list_splat_pattern (identifier) @define)
(as_pattern_target (identifier) @define)
(as_pattern_target (tuple (identifier) @define))
(named_expression name: (identifier) @define.function)

; Callers may pass any of these parameters by name.
(parameters (identifier) @keep)
(parameters (list_splat_pattern (identifier) @keep))
(parameters (dictionary_splat_pattern (identifier) @keep))
(lambda_parameters (identifier) @keep)
(lambda_parameters (list_splat_pattern (identifier) @keep))
(lambda_parameters (dictionary_splat_pattern (identifier) @keep))
(default_parameter name: (identifier) @keep)
(typed_default_parameter name: (identifier) @keep)
(typed_parameter . (identifier) @keep)
(typed_parameter (list_splat_pattern (identifier) @keep))
(typed_parameter (dictionary_splat_pattern (identifier) @keep))

(function_definition name: (identifier) @keep.outer)
(class_definition name: (identifier) @keep.outer)
(global_statement (identifier) @keep)
(aliased_import alias: (identifier) @keep)
(import_statement name: (dotted_name . (identifier) @keep))
(import_from_statement name: (dotted_name (identifier) @keep))

(nonlocal_statement) @hold
(type_parameter) @hold
(type_alias_statement left: (_) @hold)
(case_pattern) @hold
(as_pattern_target (tuple [(tuple) (list) (list_splat)] @hold))
(as_pattern_target [(list) (parenthesized_expression)] @hold)

; With `from __future__ import annotations`, annotations are stored as text.
(type) @pin

; f"{x=}" prints the name.
(interpolation "=") @pin

(attribute attribute: (identifier) @skip)
(keyword_argument name: (identifier) @skip)
(import_statement name: (dotted_name (identifier) @skip))
(aliased_import name: (dotted_name (identifier) @skip))
(import_from_statement module_name: (_ (identifier) @skip))

; Only Python 2 has these statements. In Python 2, comprehensions share the scope of the function, and exec can read its
; names.
(print_statement) @dynamic
(exec_statement) @dynamic

(identifier) @use
