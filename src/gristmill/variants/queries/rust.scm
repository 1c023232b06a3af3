; The variables around an item are not visible inside the item.
(function_item) @scope.item
(function_signature_item) @scope.item
(impl_item) @scope.wall
(trait_item) @scope.wall
(mod_item) @scope.wall
(const_item) @scope.wall
(static_item) @scope.wall
(closure_expression) @scope.function
(block) @scope
(if_expression) @scope
(while_expression) @scope
(for_expression) @scope
(match_arm) @scope

(for_expression value: (_) @outside)
(if_expression alternative: (_) @outside)

(let_declaration) @late
(let_condition) @late

(let_declaration pattern: (identifier) @define)
(let_condition pattern: (identifier) @define)
(parameter pattern: (identifier) @define)
(for_expression pattern: (identifier) @define)
(closure_parameters (identifier) @define)
(match_pattern . (identifier) @define)
(tuple_pattern (identifier) @define)
(tuple_struct_pattern type: (_) (identifier) @define)
(slice_pattern (identifier) @define)
(ref_pattern (identifier) @define)
(mut_pattern (identifier) @define)
(reference_pattern (identifier) @define)
(captured_pattern . (identifier) @define)
(or_pattern (identifier) @define)
(field_pattern pattern: (identifier) @define)
(parameter pattern: (mut_pattern (identifier) @define))

; In Foo { x }, one word is both a field and a variable.
(shorthand_field_identifier) @hold
(shorthand_field_initializer (identifier) @pin)

(function_item name: (identifier) @keep.outer)
(function_signature_item name: (identifier) @keep.outer)
(const_item name: (identifier) @keep.outer)
(static_item name: (identifier) @keep.outer)
(const_parameter name: (identifier) @keep)
(use_declaration) @hold
(extern_crate_declaration) @hold
(mod_item name: (identifier) @keep.outer)
(attribute_item) @pin
(inner_attribute_item) @pin
(macro_definition) @pin

; These macros only evaluate their arguments. Other macros may use the names: dbg!(x) prints x.
((macro_invocation macro: (identifier) @_macro (token_tree) @pin.tokens)
 (#match? @_macro "^(e?print(ln)?|format(_args)?|write(ln)?|panic|vec|(debug_)?assert_(eq|ne)|todo|unimplemented|unreachable)$"))
((macro_invocation macro: (identifier) @_macro (token_tree) @pin)
 (#not-match? @_macro "^(e?print(ln)?|format(_args)?|write(ln)?|panic|vec|(debug_)?assert_(eq|ne)|todo|unimplemented|unreachable)$"))
(macro_invocation macro: (scoped_identifier) (token_tree) @pin)
(token_tree [(string_literal) (raw_string_literal)] @pin.format)
; Braces among the tokens may contain the field names of a struct.
(token_tree (token_tree "{") @pin)

(macro_invocation macro: (identifier) @skip)
(scoped_identifier path: (identifier) @skip)
(scoped_identifier name: (identifier) @skip)
(scoped_type_identifier path: (identifier) @skip)
(label (identifier) @skip)
(lifetime (identifier) @skip)

(identifier) @use
