; <div/> is not a variable.
(jsx_opening_element name: (identifier) @skip)
(jsx_closing_element name: (identifier) @skip)
(jsx_self_closing_element name: (identifier) @skip)
